"""Records of a shop with the odd cases of real ones: every codec, key, header and null."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

from ureplicator_testkit.records.topics import CODECS, NewRecord, produce

CHUNK = 10_000
"""Consecutive records of one codec: all codecs take turns in every partition."""
# Plain producers: an idempotent one waits half a second for its id, each time one is created.
_SETTINGS = {"enable.idempotence": False, "batch.size": 131_072}
_FIRST_MS = 1_750_000_000_000
_ONE_MEANING = (("trace", b"0af7651916cd43dd"), ("content-type", b"application/json"))
_REPEATED = (("hop", b"shop"), ("hop", b"till"), ("hop", None), ("hop", b""), ("größe", b"\xff"))


def fill(
    bootstrap: str, topic: str, *, partitions: int, first: int, count: int, pause_s: float = 0.0
) -> None:
    """Produce the records numbered from `first`, with a pause after each chunk; later calls continue the
    sequence."""
    for start in range(first, first + count, CHUNK):
        records = _records(start, min(start + CHUNK, first + count), partitions)
        codec = CODECS[start // CHUNK % len(CODECS)]
        produce(bootstrap, topic, records, codec=codec, settings=_SETTINGS)
        time.sleep(pause_s)


def _records(first: int, end: int, partitions: int) -> Iterator[NewRecord]:
    for number in range(first, end):
        yield NewRecord(
            value=_value(number),
            key=_key(number),
            partition=number % partitions,
            headers=_headers(number),
            timestamp=_FIRST_MS + number * 7,
        )


def _key(number: int) -> bytes | None:
    kind = number // 8 % 11
    if kind == 0:
        return None
    return b"" if kind == 1 else b"customer-%d" % (number % 5_003)


def _value(number: int) -> bytes | None:
    kind = number // 8 % 17
    if kind == 0:
        return None  # with a key: a tombstone
    if kind == 1:
        return b""
    return b'{"order": %d, "customer": %d, "cents": %d, "items": ["%s"]}' % (
        number,
        number % 5_003,
        number * 7_919 % 100_000,
        b"screw " * (number % 23),
    )


def _headers(number: int) -> tuple[tuple[str, bytes | None], ...]:
    kind = number // 8 % 5
    return _ONE_MEANING if kind == 0 else _REPEATED if kind == 1 else ()


def main(bootstrap: str, topic: str, partitions: str, first: str, count: str, pause_s: str) -> None:
    """Fill from a process of its own."""
    fill(
        bootstrap,
        topic,
        partitions=int(partitions),
        first=int(first),
        count=int(count),
        pause_s=float(pause_s),
    )


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except AssertionError as error:  # of `produce`: what the broker did not acknowledge, and why
        sys.exit(str(error))
