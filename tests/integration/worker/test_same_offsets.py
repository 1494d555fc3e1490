"""Equal offsets between two real brokers: a scan of both logs, record by record."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from pathlib import Path

import pytest

from ureplicator_common.kafka.provenance import Provenance
from ureplicator_common.model import Partition
from ureplicator_testkit.copier.driver import StubDriver
from ureplicator_testkit.copier.lane import RealLane
from ureplicator_testkit.copier.owners import COPIED_S, COUNT, NEVER_S, SAME, Takeover
from ureplicator_testkit.histories.events import READ_UNCOMMITTED
from ureplicator_testkit.records.comparison import compare
from ureplicator_testkit.records.topics import (
    NewRecord,
    delete_records,
    offsets,
    produce,
    read_all,
)
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.processes import eventually
from ureplicator_worker.copier.start_position import FENCED
from ureplicator_worker.lifeline.messages import PartitionReport

OWNERS = int(os.environ.get("UREPLICATOR_KILLS", "6"))
FAR = 250_000
KEYS = 50
YEAR_MS = 365 * 24 * 3_600_000
ANY_TIME = {"retention.ms": "-1", "message.timestamp.before.max.ms": str(2 * YEAR_MS)}
SEGMENT_MS = 500
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": str(SEGMENT_MS),
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "500",
}
ROLLED_S = 0.6
"""A segment is older than `segment.ms` then, and the next batch begins another one."""


def a_year_ago(record: NewRecord) -> NewRecord:
    return replace(record, timestamp=round(time.time() * 1_000) - YEAR_MS)


@pytest.fixture
def owners(
    source_cluster: KafkaCluster,
    target_cluster: KafkaCluster,
    topic: str,
    fleet: str,
    tmp_path: Path,
) -> Iterator[Takeover]:
    lane = RealLane(source_cluster, target_cluster, topic, fleet, tmp_path)
    yield Takeover(lane)
    lane.close()


def assert_same(owners: Takeover) -> None:
    """Each record of the source is at the target's same offset, also for readers of everything."""
    source = read_all(owners.lane.source.bootstrap, owners.topic)
    target = owners.lane.copied(READ_UNCOMMITTED)
    for number, rows in source.items():
        assert [row.offset for row in target[number]] == [row.offset for row in rows]
        assert [row.value for row in target[number]] == [row.value for row in rows]
    ends = [
        offsets(end.bootstrap, owners.topic) for end in (owners.lane.source, owners.lane.target)
    ]
    assert {n: end for n, (_, end) in ends[0].items()} == {
        n: end for n, (_, end) in ends[1].items()
    }


def test_a_plain_topic(owners: Takeover) -> None:
    owners.make(2)
    owners.fill(COUNT)
    owners.finish(settings=SAME)
    assert_same(owners)


def test_transactions_leave_control_records(owners: Takeover) -> None:
    owners.make(1)
    for turn in range(6):
        owners.lane.fill_in_turn(turn)
    owners.finish(settings=SAME)
    assert_same(owners)


def test_a_log_begins_where_that_of_the_source_does(owners: Takeover) -> None:
    owners.make(1)
    owners.fill(2_000)
    delete_records(owners.lane.source.bootstrap, owners.topic, {0: 1_500})
    owners.finish(settings=SAME)
    assert_same(owners)
    assert offsets(owners.lane.target.bootstrap, owners.topic)[0] == (1_500, 2_000)


def keyed(record: NewRecord) -> NewRecord:
    """One record of three has a key of its own, so that compaction leaves some everywhere."""
    return replace(record, key=record.key or b"none", timestamp=None)


def fill_compacted(owners: Takeover) -> None:
    """Records with holes for the next owner. The last record begins another segment."""
    began = owners.source_ends()
    owners.fill(COUNT, keyed)
    rolls_ms = round(time.time() * 1_000) + SEGMENT_MS + 1
    last = NewRecord(None, key=b"last", timestamp=rolls_ms)
    owners.lane.fill(replace(last, value=b"%d" % end, partition=n) for n, end in began.items())

    def is_cleaned() -> bool:
        found = read_all(owners.lane.source.bootstrap, owners.topic)
        left = {n: sum(row.offset >= began[n] for row in rows) for n, rows in found.items()}
        return max(left.values()) < COUNT

    eventually(is_cleaned, COPIED_S, "compaction")


def ends_of(owners: Takeover) -> dict[Partition, int]:
    return {owners.lane.at(number): end for number, end in owners.source_ends().items()}


def has_copied(driver: StubDriver, ends: Mapping[Partition, int]) -> bool:
    """True if all partitions are ONLINE, and what the source had was copied, committed or not."""
    report = driver.report
    return driver.all_online() and all(report[key].position >= end for key, end in ends.items())


def assert_as_said(owners: Takeover, said: Sequence[Mapping[Partition, PartitionReport]]) -> None:
    """Each record that the source still has is at the target once, at the offset that owners have said."""
    source = read_all(owners.lane.source.bootstrap, owners.topic)
    target = owners.lane.copied(READ_UNCOMMITTED)
    for number, rows in source.items():
        copies = {row.value or row.key: row for row in target[number]}
        assert len(copies) == len(target[number])
        found = [copies[row.value or row.key] for row in rows]
        compare({number: rows}, {number: found}).assert_clean()
        assert found == sorted(found, key=attrgetter("offset"))
        for report in (reports[owners.lane.at(number)] for reports in said):
            for row, copy in zip(rows, found, strict=True):
                if report.shift_since <= row.offset < report.position:
                    assert copy.offset == row.offset + report.shift, (row, copy, report)


@pytest.mark.timeout(180 + 10 * OWNERS)
@pytest.mark.parametrize("config", [{}, COMPACTED], ids=["plain", "compacted"])
def test_owners_that_are_killed_one_after_the_other(
    owners: Takeover, config: Mapping[str, str]
) -> None:
    """Each uses the producer of the one before it on, and none fences. Where the cleaner has been at the
    source since, one does, and the next hole takes back what that shifts. Of three one copies all."""
    owners.make(2, source=config)
    said = []
    for turn in range(OWNERS):
        is_long = turn % 3 == 1
        if config and not is_long:
            fill_compacted(owners)
        owners.fill(COUNT, keyed if config else None)
        owners.lane.fill_in_turn(turn)
        driver = owners.own(settings=SAME, commit_interval_s=NEVER_S if turn % 2 else 0.1)
        owners.wait(driver, partial(has_copied, driver, ends_of(owners) if is_long else {}))
        said.append(driver.report)
        driver.process.kill_tree()
        driver.close()
    if config:
        fill_compacted(owners)
    driver = owners.own(settings=SAME)
    owners.wait(driver, partial(driver.caught_up, ends_of(owners)))
    said.append(driver.report)
    driver.stop()
    assert_as_said(owners, said)
    assert {report.shift for report in said[-1].values()} == {0}
    assert owners.lane.target_ends() == owners.source_ends()
    if not config:
        assert_same(owners)


def test_an_owner_that_thaws_and_never_learns_changes_no_offset(owners: Takeover) -> None:
    """Both send the same records under the same sequences, side by side: leaders take each once."""
    owners.make(2)
    owners.fill(COUNT)
    former = owners.own(settings=SAME, commit_interval_s=NEVER_S)
    former.wait_online(COPIED_S)
    former.process.pause()
    owners.fill(COUNT)
    successor = owners.own(settings=SAME)
    successor.wait_caught_up(COPIED_S)
    former.process.resume()
    for _ in range(OWNERS):
        owners.fill(COUNT)
        successor.wait_caught_up(COPIED_S)
    former.process.kill_tree()
    former.close()
    successor.stop()
    assert_same(owners)


def test_old_records_are_fenced_and_shifted(owners: Takeover) -> None:
    """Brokers forget the producer of old records by their time, so it is never used on."""
    owners.make(1, source=ANY_TIME, target=ANY_TIME)
    owners.fill(COUNT, a_year_ago)
    driver = owners.own(settings=SAME, commit_interval_s=NEVER_S)
    driver.wait_online(COPIED_S)
    driver.process.kill_tree()
    driver.close()
    owners.fill(COUNT, a_year_ago)
    owners.finish(settings=SAME)
    owners.assert_once()
    target = owners.lane.copied(READ_UNCOMMITTED)[0]
    assert [row.offset for row in target] in (
        [*range(COUNT), *range(COUNT + 1, 2 * COUNT + 1)],
        [*range(1, 2 * COUNT + 1)],
    )
    (position,) = owners.lane.stored(1).values()
    provenance = Provenance.decode(position.metadata)
    assert provenance is not None
    assert provenance.same is not None
    assert (provenance.same.shift, provenance.same.why) == (1, FENCED)


def test_what_compaction_took_is_filled(owners: Takeover) -> None:
    owners.make(1, source=COMPACTED)
    for _ in range(4):
        owners.lane.fill([NewRecord(b"%d" % n, key=b"%d" % (n % KEYS)) for n in range(COUNT)])
        time.sleep(ROLLED_S)
    owners.lane.fill([NewRecord(b"last", key=b"last")])
    source = owners.lane.source.bootstrap
    eventually(lambda: len(read_all(source, owners.topic)[0]) < 2 * COUNT, COPIED_S, "compaction")
    owners.finish(settings=SAME)
    taken = {row.offset: row.value for row in read_all(source, owners.topic)[0]}
    found = {row.offset: row.value for row in owners.lane.copied(READ_UNCOMMITTED)[0]}
    assert taken.items() <= found.items()


def test_owners_that_are_killed_while_a_log_is_filled(owners: Takeover) -> None:
    """Fillers of half a second, in which three owners are killed."""
    owners.make(1)
    owners.fill(FAR + COUNT)
    delete_records(owners.lane.source.bootstrap, owners.topic, {0: FAR})
    for _ in range(3):
        before = owners.lane.target_ends()[0]
        driver = owners.own(settings=SAME)
        eventually(lambda: owners.lane.target_ends()[0] > before, COPIED_S, "fillers")  # noqa: B023
        driver.process.kill_tree()
        driver.close()
    owners.finish(settings=SAME)
    assert_same(owners)
    assert offsets(owners.lane.target.bootstrap, owners.topic)[0] == (FAR, FAR + COUNT)


def test_a_target_that_is_compacted_only_gets_no_filler(owners: Takeover) -> None:
    owners.make(1, target={"cleanup.policy": "compact"})
    owners.fill(COUNT)
    delete_records(owners.lane.source.bootstrap, owners.topic, {0: COUNT - 1})
    driver = owners.own(settings=SAME)
    assert "cleanup.policy=compact,delete" in owners.lane.failure(driver, 0)
    assert owners.lane.target_ends() == {0: 0}


def test_a_target_that_holds_records_is_refused(owners: Takeover) -> None:
    owners.make(1)
    owners.fill(COUNT)
    produce(owners.lane.target.bootstrap, owners.topic, [NewRecord(b"other")])
    driver = owners.own(settings=SAME)
    assert "it holds offsets 0 to 0" in owners.lane.failure(driver, 0)
    assert len(owners.lane.copied()[0]) == 1
