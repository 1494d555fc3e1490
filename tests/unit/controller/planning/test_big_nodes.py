"""Bounded nodes: every node stays below ZooKeeper's limit, however big the fleet is."""

from __future__ import annotations

import pytest

from ureplicator_common.model import (
    OwnerEpoch,
    Partition,
    PartitionState,
    SessionId,
    WorkerId,
    transactional_ids,
)
from ureplicator_common.znode_contents import (
    Assignment,
    AssignmentEntry,
    CurrentEntry,
    CurrentState,
    IdealEntry,
    IdealTopic,
    PositionChange,
    TopicIntent,
)
from ureplicator_common.znodes.codec import LIMIT_BYTES
from ureplicator_common.znodes.topics import MAX_TOPIC_PARTITIONS, encode_ideal, encode_intent
from ureplicator_common.znodes.workers import MAX_ASSIGNED, encode_assignment, encode_current
from ureplicator_controller.core.planning import handover as handover_module
from ureplicator_controller.core.state import mismatches as mismatches_module
from ureplicator_controller.core.state.external_view import external_view
from ureplicator_controller.core.state.mismatches import mismatches
from ureplicator_testkit.control.fleet import ROUTE, ControlFleet

WORKERS = [WorkerId(f"worker-{number:03d}.replication.example.org") for number in range(100)]


def scattered(number: int, among: int) -> int:
    """Pseudo-random and deterministic."""
    return (number * 2_654_435_761 >> 7) % among


def partition_at(number: int) -> Partition:
    """Partition of topics whose names have little in common."""
    return Partition(ROUTE, f"team-{scattered(number, 10**6):06d}.events", number % 8)


def epoch(number: int) -> OwnerEpoch:
    return OwnerEpoch((7 << 20) + scattered(number, 1_000))


def holders(number: int) -> dict[WorkerId, SessionId]:
    """Three workers that may still be able to commit, each under one of its last sessions."""
    found = {}
    for nth in range(3):
        worker = scattered(3 * number + nth, len(WORKERS))
        session = 72_057_594_037_927_936 + 1_000_003 * worker + scattered(number, 2)
        found[WORKERS[worker]] = SessionId(session)
    return found


def test_biggest_topic_fits_into_its_nodes() -> None:
    entries = {
        number: IdealEntry(
            WORKERS[scattered(number, 100)],
            epoch(number),
            1_769_860_800_000 + scattered(number, 100_000),
            f"worker {WORKERS[scattered(number, 7)]} lost",
            holders(number),
        )
        for number in range(MAX_TOPIC_PARTITIONS)
    }
    assert len(encode_ideal(IdealTopic(entries))) < LIMIT_BYTES
    odd = frozenset(range(1, MAX_TOPIC_PARTITIONS, 2))
    offsets = (number * 2_654_435_761_011 % 10**12 for number in range(MAX_TOPIC_PARTITIONS))
    changes = {
        number: PositionChange(offset, "r" * 73, "done", offset + scattered(number, 10**6))
        for number, offset in enumerate(offsets)
    }
    intent = TopicIntent(
        MAX_TOPIC_PARTITIONS,
        MAX_TOPIC_PARTITIONS,
        blacklisted=odd,
        had_position=odd,
        positions=changes,
        target_topic="orders",
    )
    assert len(encode_intent(intent)) < LIMIT_BYTES


def test_biggest_assignment_and_current_state_fit() -> None:
    fences = [
        transactional_ids(fleet="production", route=ROUTE, worker=worker, slots=8)
        for worker in WORKERS
    ]
    assigned = {
        partition_at(number): AssignmentEntry(
            epoch(number), fences[scattered(number, 100)] + fences[scattered(number + 1, 100)]
        )
        for number in range(MAX_ASSIGNED)
    }
    assert len(encode_assignment(Assignment(assigned))) < LIMIT_BYTES
    reported = {
        partition: CurrentEntry(
            PartitionState.ERROR,
            entry.owner_epoch,
            f"source: broker-{number % 50}.example.org:9092 unreachable: Connection refused",
        )
        for number, (partition, entry) in enumerate(assigned.items())
    }
    assert len(encode_current(CurrentState(1, reported))) < LIMIT_BYTES


def test_worker_gets_no_more_partitions_than_the_maximum_with_a_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (handover_module, mismatches_module):
        monkeypatch.setattr(module, "MAX_ASSIGNED", 3)
    fleet = ControlFleet()
    fleet.worker("a")
    fleet.topic("t", 5)
    fleet.settle()
    seen = fleet.observe()
    assert len(seen.assignments[WorkerId("a")].value.entries) == 3
    assert [found.reason for found in mismatches(seen, external_view(seen))] == [
        "worker a already has 3 partitions, the maximum: add workers"
    ] * 2
    assert fleet.planner(seen, fleet.now_s).steps == (), "and it is not planned again for ever"
    fleet.worker("b")
    fleet.settle()
    fleet.wait(60)
    fleet.settle()
    assert fleet.counts() == {"a": 3, "b": 2}
    seen = fleet.observe()
    assert mismatches(seen, external_view(seen)) == []
