"""Transactions of the source over several fetches: what was committed arrives, whatever lies between."""

import pytest

from ureplicator_common.model import Partition
from ureplicator_testkit.copier.line import ROUTE, MakeLine, values
from ureplicator_testkit.kafka.batch_log import BatchLog
from ureplicator_testkit.records import batches
from ureplicator_worker.copier.raw import fetch_schedule

K0 = ("t", 0)
RECORD_BYTES = 1_000

HISTORY = (
    *("1 aborted", "2 aborted", "3 committed", "plain", "1 aborted", "2 aborted"),
    "1 abort",  # 6
    *("2 aborted", "1 committed", "3 commit", "2 aborted"),
    "2 abort",  # 11
    *("1 commit", "2 committed", "2 commit", "plain"),
)
"""Each offset: a producer with a record and what becomes of it, or with a marker."""
COPIED = [offset for offset, step in enumerate(HISTORY) if step.endswith(("committed", "plain"))]


def append(log: BatchLog, step: str) -> None:
    """One batch of one record, which names its offset."""
    producer, _, what = step.rpartition(" ")
    if what in ("abort", "commit"):
        marker = batches.marker(base_offset=0, producer_id=int(producer), commit=what == "commit")
        log.put(marker)
        return
    row = (0, None, b"%d " % log.end * (RECORD_BYTES // 3), ())
    if what == "plain":
        log.put(batches.batch([row]))
    else:
        log.put(batches.batch([row], producer_id=int(producer), attributes=batches.TRANSACTIONAL))


def offsets(found: list[bytes | None]) -> list[int]:
    return [int(value.split()[0]) for value in found if value]


@pytest.mark.parametrize("start", range(len(HISTORY)))
@pytest.mark.parametrize("batches_a_fetch", [1, 3, 100])
def test_committed_records_arrive_from_any_offset_in_any_number_of_fetches(
    make: MakeLine, monkeypatch: pytest.MonkeyPatch, start: int, batches_a_fetch: int
) -> None:
    """The first transaction lies in up to six responses; a start may lie in its middle."""
    limit = batches_a_fetch * (RECORD_BYTES + 200)
    monkeypatch.setattr(fetch_schedule, "PARTITION_BYTES", limit)
    monkeypatch.setattr(fetch_schedule, "MIN_PARTITION_BYTES", limit)
    line = make(1)
    for step in HISTORY:
        append(line.source.logs[K0], step)
    line.ownership.stored[Partition(ROUTE, "t", 0)] = start
    (partition,) = line.add(0)
    line.run(lambda: line.copied(partition))
    assert offsets(values(line.target, K0)) == [number for number in COPIED if number >= start]


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_what_follows_an_open_transaction_waits_for_its_end(make: MakeLine, end: str) -> None:
    line = make(1)
    log = line.source.logs[K0]
    for step in ("plain", "1 open", "plain"):
        append(log, step)
    (partition,) = line.add(0)
    line.run(lambda: line.report(partition).committed == 1)
    line.turns(10)
    assert offsets(values(line.target, K0)) == [0]
    assert line.report(partition).lag == 0  # there is nothing that may be copied
    append(log, f"1 {end}")
    line.run(lambda: line.copied(partition))
    assert offsets(values(line.target, K0)) == ([0, 1, 2] if end == "commit" else [0, 2])
