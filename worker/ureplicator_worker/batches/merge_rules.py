"""Rules of merging: the stored batches that are merged into larger ones, and the size of these.

A batch costs the copier and both brokers the same whatever its size: a part of a request, an append, an
acknowledgement, some 150 us together. And a partition has at most five batches under way, so over a line of
100 ms small ones are as slow as they are small. A merged batch is copied once more, and each of its records
gets new numbers, 0.5 us without compression. So batches are merged

* up to `SMALL_BYTES`, whatever they hold,
* up to `LARGE_BYTES`, if they are not compressed and have few records: producers send batches of 16 KB
  unless configured otherwise,
* up to `QUICK_BYTES`, if their codec is a quick one and they have even fewer.

Compressed ones have to be decompressed and compressed again: 1.2 us for 1 KB of records in lz4, 2.2 in zstd.
Larger ones cost more to merge than that saves. But where batches wait for the round trips to a far broker
(`net.round_trip`), it is the number of batches that limits a partition. Such batches are merged whatever they
hold, into larger ones: up to `FAR_MERGED_BYTES`.
"""

from __future__ import annotations

from ureplicator_worker.batches.codecs import LZ4, NONE, SNAPPY

SMALL_BYTES = 8 << 10
LARGE_BYTES = 64 << 10
FEW_RECORDS = 64
QUICK_BYTES = 12 << 10
QUICK_RECORDS = 32
_LIMITS = {
    NONE: (LARGE_BYTES, FEW_RECORDS),
    SNAPPY: (QUICK_BYTES, QUICK_RECORDS),
    LZ4: (QUICK_BYTES, QUICK_RECORDS),
}
"""Most bytes and records of a batch, by codec."""
MERGED_BYTES = 256 << 10
"""Size of a merged batch, where the broker is near."""
FAR_MERGED_BYTES = 768 << 10
"""Size of a merged batch, where it is far away. Brokers accept 1 MiB unless configured otherwise, and
the records may need more bytes than before: they are compressed at the fastest level."""
MERGE_AT_LEAST = 4
"""Batches. With fewer there is no backlog."""
MERGE_AT_LEAST_FAR = 2
"""Batches: the backlog is known there."""


def is_merged(size_bytes: int, *, records: int, codec: int, far_bytes: int) -> bool:
    """True for a batch that is merged with its neighbours. `far_bytes`: size of merged ones where they would
    wait for round trips to a far broker, else 0."""
    if size_bytes <= SMALL_BYTES:
        return True
    if far_bytes:
        return size_bytes <= far_bytes // 2
    most_bytes, most_records = _LIMITS.get(codec, (SMALL_BYTES, 0))
    return size_bytes <= most_bytes and records <= most_records
