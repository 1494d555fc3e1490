"""Time of a source batch by its header, retention by the settings of a topic."""

from __future__ import annotations

from typing import Any

import pytest

from ureplicator_common.kafka import BatchTime, Lifetime, PartitionUnavailable
from ureplicator_common.kafka.client import EARLIEST, LATEST, Broker
from ureplicator_common.kafka.log_offsets import KafkaLogReader, batch_time, lifetime
from ureplicator_testkit.kafka.clients import MemoryCluster
from ureplicator_testkit.kafka.cluster import cluster_model
from ureplicator_testkit.records.batches import (
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    ZSTD,
    batch,
    marker,
    old_batch,
    patched,
    rows,
)

TEN = batch(rows(10, timestamp_ms=5_000), base_offset=100, codec=ZSTD)
"""Offsets 100 to 109, times 5,000 to 5,009."""
NEXT = batch(rows(5, timestamp_ms=9_000), base_offset=110)


@pytest.mark.parametrize(
    ("records", "offset", "found"),
    [
        (TEN, 100, BatchTime(100, 109, 5_000)),
        (TEN + NEXT, 105, BatchTime(100, 109, 5_000)),
        (TEN + NEXT, 110, BatchTime(110, 114, 9_000)),
        (TEN + NEXT[:50], 110, BatchTime(110, 114, 9_000)),
        (TEN + NEXT[:40], 110, None),
        (TEN, 90, BatchTime(90, 109, 5_000)),
        (TEN, 110, None),
        (b"", 100, None),
        (TEN[:40], 100, None),
        (marker(base_offset=7, producer_id=1, commit=True), 7, BatchTime(7, 7, 1_000)),
    ],
    ids=[
        "its first record",
        "inside: at most",
        "the second batch",
        "a cut batch",
        "a cut header",
        "a hole before it",
        "nothing there",
        "nothing sent",
        "nothing whole",
        "the end of a transaction",
    ],
)
def test_time_of_the_next_record(records: bytes, offset: int, found: BatchTime | None) -> None:
    assert batch_time(records, offset) == found


@pytest.mark.parametrize("attribute", [LOG_APPEND_TIME, DELETE_HORIZON])
def test_the_first_time_is_not_always_that_of_a_record(attribute: int) -> None:
    stamped = patched(TEN, attributes=attribute, base_timestamp=77, max_timestamp=6_000)
    assert batch_time(stamped, 100) == BatchTime(100, 109, 6_000)


def test_records_without_a_time() -> None:
    timeless = patched(TEN, base_timestamp=-1, max_timestamp=-1)
    assert batch_time(timeless, 100) == BatchTime(100, 109, -1)
    old = old_batch([(-1, b"k", b"v")], magic=0, base_offset=3)
    assert batch_time(old, 3) == BatchTime(3, 3, -1)


def test_old_formats() -> None:
    two = old_batch([(5_000, b"k", b""), (6_000, b"", b"")], magic=1, base_offset=3)
    assert batch_time(two, 3) == BatchTime(3, 3, 5_000)
    assert batch_time(two, 4) == BatchTime(4, 4, 6_000)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (
            {"cleanup.policy": "delete", "retention.ms": "60000", "retention.bytes": "-1"},
            Lifetime(60_000, None),
        ),
        (
            {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "5"},
            Lifetime(None, 5),
        ),
        ({"cleanup.policy": "compact", "retention.ms": "60000"}, Lifetime()),
        ({"cleanup.policy": "compact,delete", "retention.ms": "60000"}, Lifetime(60_000)),
        ({"retention.ms": None}, Lifetime()),
    ],
)
def test_lifetime(settings: dict[str, str | None], expected: Lifetime) -> None:
    assert lifetime(settings) == expected


def test_offsets_at_times() -> None:
    """A time behind the last record is the end of the committed ones."""
    model = cluster_model("a", {"t": 4})
    for log in model.logs.values():
        log.start, log.end, log.open_from = 10, 60, 50
        log.times = [BatchTime(10, 29, 1_000), BatchTime(30, 59, 2_000)]
    client = MemoryCluster(model)
    client.leaderless.add(("t", 3))
    wanted = {("t", 0): 1_500, ("t", 1): 9_000, ("t", 2): EARLIEST, ("t", 3): LATEST}
    found = KafkaLogReader(client).offsets_at(wanted)
    assert isinstance(found["t", 3], PartitionUnavailable)
    assert [found["t", number] for number in range(3)] == [30, 50, 10]
    assert KafkaLogReader(client).offsets_at({("t", 1): LATEST}, committed=False) == {("t", 1): 60}


class GrowingCluster(MemoryCluster):
    """A record is written after each request, at the time 9,000."""

    def call(self, broker: Broker, request: Any, response: Any) -> Any:
        found = super().call(broker, request, response)
        for log in self.model.logs.values():
            log.times = [*log.times, BatchTime(log.end, log.end, 9_000)]
            log.end += 1
        return found


def test_a_record_written_after_the_time_was_looked_up_is_not_passed_over() -> None:
    model = cluster_model("a", {"t": 1})
    model.logs["t", 0].end, model.logs["t", 0].times = 60, [BatchTime(0, 59, 1_000)]
    reader = KafkaLogReader(GrowingCluster(model))
    assert reader.offsets_at({("t", 0): 9_000}) == {("t", 0): 60}
    model.logs["t", 0].end, model.logs["t", 0].times = 60, []
    assert reader.offsets_at({("t", 0): 99_000}) == {("t", 0): 60}
