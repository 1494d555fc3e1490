"""Record batches of the map's topic, by kafka-python: without compression, in transactions."""

from __future__ import annotations

from collections.abc import Sequence

from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from ureplicator_common.offset_map.codec import Row

FORMAT = 2


def encode_batch(
    rows: Sequence[Row], *, producer_id: int, producer_epoch: int, sequence: int, time_ms: int
) -> bytes:
    """A batch of a transaction."""
    builder = DefaultRecordBatchBuilder(
        magic=FORMAT,
        compression_type=DefaultRecordBatch.CODEC_NONE,
        is_transactional=True,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=sequence,
        batch_size=1 << 30,
    )
    for number, (key, value) in enumerate(rows):
        builder.append(number, time_ms, key, value, [])
    return bytes(builder.build())
