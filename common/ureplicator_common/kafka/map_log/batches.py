"""Record batches of the map's topic, by kafka-python: without compression, in transactions."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from kafka.errors import CorruptRecordError
from kafka.record import MemoryRecords
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from ureplicator_common.offset_map.codec import Row, UnknownMapFormat
from ureplicator_common.offset_map.route_maps import Batch

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


def decode_batches(data: bytes) -> Iterator[Batch]:
    """Whole batches of a fetch response; a cut one at the end is left out. Raises UnknownMapFormat."""
    try:
        for stored in MemoryRecords(data):
            yield _batch(stored)
    except (CorruptRecordError, struct.error) as error:
        raise UnknownMapFormat(f"offset map: {error}") from error


def _batch(stored: DefaultRecordBatch) -> Batch:
    first = stored.base_offset
    if not isinstance(stored, DefaultRecordBatch) or stored.compression_type:
        raise UnknownMapFormat(
            f"offset map: a batch at offset {first} of another format or codec:"
            " another program writes to the topic"
        )
    if not stored.validate_crc():
        raise UnknownMapFormat(f"offset map: a wrong checksum at offset {first}")
    ends = stored.is_control_batch
    records = list(stored)
    return Batch(
        first=first,
        last=first + stored.last_offset_delta,
        producer_id=stored.producer_id,
        transactional=stored.is_transactional,
        ends=ends,
        aborts=ends and any(record.abort for record in records),
        rows=() if ends else [Row(record.key or b"", record.value) for record in records],
    )
