"""Scenarios of MirrorMaker 2's own tests for groups: before the first record, after a restart, far behind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from ureplicator_common.model import Delivery
from ureplicator_testkit.fleet.real_fleet import Fleet
from ureplicator_testkit.records.consumers import READ_S, alter_offsets, delete_group, group_offsets
from ureplicator_testkit.records.labels import label_of, labelled_records
from ureplicator_testkit.records.topics import create_topic, produce, read_all
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.processes import eventually

RECORDS = 1_000


@dataclass(frozen=True, slots=True)
class Case:
    """A topic of one partition with records, of which nothing is copied, and a group of its own."""

    fleet: Fleet
    source: str
    target: str
    topic: str
    group: str

    def produce(self, *, first: int = 0) -> None:
        produce(
            self.source,
            self.topic,
            labelled_records(self.topic, partitions=1, count=RECORDS, first=first),
        )

    def read_to(self, offset: int) -> None:
        """The group, at the source."""
        alter_offsets(self.source, self.group, {(self.topic, 0): offset})

    def target_offset(self) -> int | None:
        found = group_offsets(self.target, self.group).get((self.topic, 0))
        return None if found is None else found.offset

    def wait_target_offset(self, offset: int) -> None:
        eventually(
            lambda: self.target_offset() == offset,
            READ_S,
            f"{self.group} has offset {offset} at the target",
        )

    def fate(self) -> str:
        """Reason shown for a group that is gone; "" if it is there, or not known."""
        found = self.fleet.call("GET", f"/groups/{self.group}")
        shown = found.json() if found.ok else {}
        return str(shown["reason"]) if shown.get("state") == "gone at the source" else ""

    def shown(self) -> dict[str, Any]:
        """Its partition, as it is shown."""
        (found,) = self.fleet.rest("GET", f"/groups/{self.group}")["partitions"]
        return dict(found)

    def next_number(self) -> int | None:
        """The first record that the group has not read at the target. Markers of transactions lie between."""
        offset = self.target_offset() or 0
        left = [
            record for record in read_all(self.target, self.topic)[0] if record.offset >= offset
        ]
        return label_of(left[0]).number if left else None

    def wait_pass(self) -> None:
        """Wait until the sync has ended a pass that began after this call: another group, of another topic,
        shows it. The pass that wrote its first offset may have begun before."""
        topic, group = f"{self.topic}-seen", f"{self.group}-seen"
        create_topic(self.source, topic, partitions=1)
        produce(self.source, topic, labelled_records(topic, partitions=1, count=RECORDS))
        self.fleet.whitelist(topic)
        seen: set[int] = set()
        for offset in (1, RECORDS):
            alter_offsets(self.source, group, {(topic, 0): offset})
            eventually(lambda: self._is_written(group, seen), READ_S, f"{group} is written")

    def _is_written(self, group: str, seen: set[int]) -> bool:
        """True if the group has an offset that is not among those that were seen; then it is."""
        new = {row.offset for row in group_offsets(self.target, group).values()} - seen
        seen |= new
        return bool(new)


@pytest.fixture
def case(
    running: Fleet,
    source_cluster: KafkaCluster,
    target_cluster: KafkaCluster,
    topic: str,
    group: str,
) -> Case:
    made = Case(running, source_cluster.bootstrap, target_cluster.bootstrap, topic, group)
    create_topic(made.source, topic, partitions=1)
    made.produce()
    return made


@pytest.mark.parametrize("delivery", Delivery)
def test_a_topic_of_which_nothing_is_copied_has_no_offset_until_something_is(case: Case) -> None:
    create_topic(case.target, case.topic, partitions=1)
    case.read_to(700)
    case.wait_pass()
    assert group_offsets(case.target, case.group) == {}
    case.fleet.whitelist(case.topic)
    case.wait_target_offset(700)


def test_all_processes_are_restarted_and_the_group_goes_on(case: Case) -> None:
    """Records and offsets that came while nothing ran follow, too."""
    case.fleet.whitelist(case.topic)
    case.read_to(RECORDS)
    case.wait_target_offset(RECORDS)
    case.fleet.stop()
    case.produce(first=RECORDS)
    case.read_to(2 * RECORDS - 1)
    assert case.target_offset() == RECORDS
    case.fleet.heal()
    eventually(
        lambda: case.next_number() == 2 * RECORDS - 1,
        READ_S,
        "the group is before the last record",
    )


@pytest.mark.parametrize("delivery", Delivery)
def test_a_group_far_behind_moves_exactly_and_is_not_set_back(case: Case) -> None:
    """MirrorMaker 2 follows a group that is set back at the source. Here it stays, and it is said why."""
    case.fleet.whitelist(case.topic)
    for offset in (0, RECORDS // 10, RECORDS // 10 + 1, RECORDS * 9 // 10):
        case.read_to(offset)
        case.wait_target_offset(offset)
    case.read_to(RECORDS // 10)
    case.wait_pass()
    assert case.target_offset() == RECORDS * 9 // 10
    eventually(
        lambda: case.shown()["sourceOffset"] == RECORDS // 10,
        READ_S,
        "what the pass found is shown",
    )
    shown = case.shown()
    assert shown["targetOffset"] == RECORDS * 9 // 10
    assert (shown["state"], shown["skipped"]) == ("ahead on the target", RECORDS * 8 // 10)


def test_a_group_that_is_deleted_at_the_source_is_deleted_at_the_target_after_a_while(
    case: Case,
) -> None:
    """A leader that did not see it at the source deletes it."""
    case.fleet.whitelist(case.topic)
    case.read_to(300)
    case.wait_target_offset(300)
    delete_group(case.source, case.group)
    eventually(lambda: "are deleted at" in case.fate(), READ_S, "the group is noted as gone")
    assert case.target_offset() == 300
    case.fleet.controllers[case.fleet.leader()].kill_tree()
    case.fleet.heal()
    eventually(lambda: case.target_offset() is None, READ_S, "its offset at the target is deleted")
    eventually(lambda: not case.fate(), READ_S, "the group is not known any more")
