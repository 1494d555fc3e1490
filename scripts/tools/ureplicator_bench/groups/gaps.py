"""Topics with a gap at nearly each record, and groups that have stopped in the middle of them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from confluent_kafka import Producer

from ureplicator_bench.servers import Servers
from ureplicator_testkit.records.topics import (
    QUIET,
    NewRecord,
    create_topic,
    produce,
    read_all,
)
from ureplicator_testkit.servers.processes import eventually

PARTITIONS = 4
TRANSACTIONS, IN_EACH = 1_500, 8
"""Every third of them is aborted."""
RECORDS = 24_000
"""Records of the compacted topic, of which about half stay."""
READ_SHARES = (0.2, 0.5, 0.9)
RESPONSE_S, CLEANED_S = 30.0, 120.0
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "500",
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "500",
}


class Gaps(NamedTuple):
    """A topic that is filled. `places`: for each partition the offset of each record, of which the value is
    its number."""

    kind: str
    topic: str
    places: Mapping[int, Mapping[int, int]]

    @property
    def records(self) -> int:
        return sum(map(len, self.places.values()))

    def stopped(self, share: float) -> Mapping[tuple[str, int], int]:
        """Offsets of a group that has read this share of each partition."""
        return {
            (self.topic, number): list(places.values())[int(share * (len(places) - 1))] + 1
            for number, places in self.places.items()
        }

    def left(self, offsets: Mapping[tuple[str, int], int]) -> dict[int, set[int]]:
        """Numbers of the records from these offsets on."""
        found = {}
        for (_, number), offset in offsets.items():
            numbers, places = zip(*self.places[number].items(), strict=True)
            found[number] = set(numbers[bisect_right(places, offset - 1) :])
        return found


def fill(servers: Servers, prefix: str) -> Sequence[Gaps]:
    """A transactional topic and a compacted one, empty at the target."""
    return [
        _filled(servers, f"{prefix}-transactional", "transactional", {}, _transactions),
        _filled(servers, f"{prefix}-compacted", "compacted", COMPACTED, _compacted),
    ]


def _filled(
    servers: Servers,
    topic: str,
    kind: str,
    config: Mapping[str, str],
    produce_all: Callable[[str, str], None],
) -> Gaps:
    create_topic(servers.source.bootstrap, topic, partitions=PARTITIONS, config=config)
    create_topic(servers.target.bootstrap, topic, partitions=PARTITIONS)
    produce_all(servers.source.bootstrap, topic)
    log = read_all(servers.source.bootstrap, topic)
    places = {
        number: {int(record.value or b"-1"): record.offset for record in records}
        for number, records in log.items()
    }
    return Gaps(kind, topic, places)


def _transactions(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic, **QUIET})
    producer.init_transactions(RESPONSE_S)
    for turn in range(TRANSACTIONS):
        producer.begin_transaction()
        for number in range(turn * IN_EACH, (turn + 1) * IN_EACH):
            producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
        # An abort that overtakes its records is refused as an invalid state (librdkafka 4849).
        producer.flush(RESPONSE_S)
        if turn % 3 == 1:
            producer.abort_transaction(RESPONSE_S)
        else:
            producer.commit_transaction(RESPONSE_S)


def _compacted(bootstrap: str, topic: str) -> None:
    """Fill a compacted topic: of each partition every second record has the same key."""
    produce(bootstrap, topic, [_record(number) for number in range(RECORDS)])
    more = iter(range(RECORDS, 2 * RECORDS))

    def is_cleaned() -> bool:
        """New records have the segments rolled."""
        produce(bootstrap, topic, [_record(next(more)) for _ in range(2 * PARTITIONS)])
        log = read_all(bootstrap, topic)
        return all(
            len(records) < 0.7 * (records[-1].offset - records[0].offset + 1)
            for records in log.values()
        )

    eventually(is_cleaned, CLEANED_S, f"{topic} is compacted", poll_s=1.0)


def _record(number: int) -> NewRecord:
    at = number // PARTITIONS
    key = b"same" if at % 2 and number < RECORDS else b"%d" % number
    return NewRecord(b"%d" % number, key=key, partition=number % PARTITIONS)
