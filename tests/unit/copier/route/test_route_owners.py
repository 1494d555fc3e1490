"""Workers that take partitions over from each other: real lanes, the real ownership thread, one ledger.

Random faults of brokers, coordinators and workers. Positions never go back and never pass what the target
holds (`LedgerFleet.check_positions`). In the end the target holds every record, in order; and once, where
no worker was killed or frozen.
"""

from collections import deque
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ureplicator_common.kafka.errors import ErrorCode
from ureplicator_common.kafka.provenance import Provenance
from ureplicator_common.model import Partition
from ureplicator_testkit.copier.ledger_fleet import LedgerFleet, put
from ureplicator_testkit.copier.line import TURNS, records, seen
from ureplicator_testkit.kafka.memory_kafka import MemoryKafka

PARTITIONS = 2
K0 = ("t", 0)
WORKERS = ("w1", "w2", "w3")
CODES = [
    ErrorCode.NONE,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
]
REQUESTS = ("initialise", "fence", "read", "commit")
BREAKS = ("cut", "refuse", "move leader", "ledger", "ledger", "none")
FAULTS = {
    "once": BREAKS,
    "in order": (*BREAKS, "move", "move", "freeze", "freeze", "thaw", "kill"),
}


MakeFleet = Callable[..., LedgerFleet]


@pytest.fixture
def fleets() -> Iterator[MakeFleet]:
    """Fleets with one partition, closed at the end."""
    made: list[LedgerFleet] = []

    def make(*workers: str) -> LedgerFleet:
        made.append(fleet_of(*workers, partitions=1))
        return made[-1]

    yield make
    for fleet in made:
        fleet.close()


def fleet_of(*workers: str, partitions: int = PARTITIONS) -> LedgerFleet:
    topics = {"t": partitions}
    return LedgerFleet(MemoryKafka("A", topics), MemoryKafka("B", topics), *workers)


def harm(fleet: LedgerFleet, fault: str, data: st.DataObject) -> None:
    worker = data.draw(st.sampled_from(WORKERS))
    number = data.draw(st.integers(0, PARTITIONS - 1))
    kafka = data.draw(st.sampled_from([fleet.source, fleet.target]))
    match fault:
        case "cut":
            kafka.cut(1)
        case "refuse":
            codes = data.draw(st.lists(st.sampled_from(CODES), min_size=1, max_size=6))
            kafka.refuse["t", number] = deque(map(int, codes))
        case "move leader":
            kafka.move(("t", number), 1)
        case "ledger":
            name = data.draw(st.sampled_from(REQUESTS))
            fleet.ledger.fail_next(name, data.draw(st.sampled_from(["before", "after"])))
        case "move":
            fleet.give(number, worker)
        case "freeze":
            fleet.workers[worker].frozen = True
        case "thaw":
            fleet.workers[worker].frozen = False
        case "kill":
            fleet.kill(worker)


def heal(fleet: LedgerFleet) -> None:
    for worker in fleet.workers.values():
        worker.frozen = False
    for kafka in (fleet.source, fleet.target):
        kafka.refuse.clear()


@pytest.mark.parametrize("promise", sorted(FAULTS))
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_the_target_holds_everything_whoever_copied_it(promise: str, data: st.DataObject) -> None:
    fleet = fleet_of(*WORKERS)
    try:
        for number in range(PARTITIONS):
            fleet.give(number, WORKERS[number])
        for _ in range(data.draw(st.integers(1, 12))):
            put(fleet, data.draw(st.integers(0, PARTITIONS - 1)), data.draw(st.integers(0, 8)))
            harm(fleet, data.draw(st.sampled_from(FAULTS[promise])), data)
            skip_s = data.draw(st.sampled_from([0.01, 0.1, 0.5]))
            fleet.turns(data.draw(st.integers(0, 25)), skip_s=skip_s)
        heal(fleet)
        fleet.run_until_copied()
        for number in range(PARTITIONS):
            key = ("t", number)
            ours, theirs = (seen(records(kafka, key)) for kafka in (fleet.target, fleet.source))
            assert (ours if promise == "once" else list(dict.fromkeys(ours))) == theirs
    finally:
        fleet.close()


def handed_over(fleet: LedgerFleet) -> Partition:
    """Copied by w1 and released; it is given to w2, whose process does nothing yet."""
    fleet.workers["w2"].frozen = True
    partition = fleet.give(0, "w1")
    put(fleet, 0, 4, size=3_000)
    fleet.source.move(K0, 1)
    put(fleet, 0, 2, size=3_000)
    fleet.run_until_copied()
    fleet.give(0, "w2")
    fleet.turns(20)
    assert not fleet.workers["w1"].copier.holder.owned
    return partition


def reason_of_failure(fleet: LedgerFleet, name: str) -> str:
    """The worker's first failure, once its process goes on."""
    worker = fleet.workers[name]
    worker.frozen = False
    for _ in range(TURNS):
        if worker.failures:
            return worker.failures[0].reason
        fleet.turn()
    raise AssertionError(f"no failure: {worker.copier.report()}")


def test_a_source_truncated_between_two_owners(fleets: MakeFleet) -> None:
    """The epoch of the last copied record goes through the position store to the next owner's fetch."""
    fleet = fleets("w1", "w2")
    handed_over(fleet)
    fleet.source.logs[K0].truncate(4)
    fleet.source.move(K0, 1)
    put(fleet, 0, 5)
    reason = reason_of_failure(fleet, "w2")
    assert "source log was truncated: epoch 0 ends at 4, position is 6" in reason
    assert len(fleet.target.logs[K0].taken) == 6
    assert fleet.ledger.read(K0).offset == 6


def test_a_target_that_lost_records_between_two_owners(fleets: MakeFleet) -> None:
    fleet = fleets("w1", "w2")
    handed_over(fleet)
    log = fleet.target.logs[K0]
    log.truncate(5)
    put(fleet, 0, 5)
    assert "target lost offsets 5 to 5" in reason_of_failure(fleet, "w2")
    assert log.end == 5


def test_a_worker_that_was_frozen_commits_and_sends_no_more(fleets: MakeFleet) -> None:
    """It goes on with what it had, until its commit is fenced; then nothing more leaves it."""
    fleet = fleets("w1", "w2")
    partition = fleet.give(0, "w1")
    put(fleet, 0, 5)
    fleet.run_until_copied()
    former = fleet.workers["w1"]
    former.frozen = True
    put(fleet, 0, 5)
    fleet.give(0, "w2")
    fleet.run_until_copied()
    former.frozen = False
    put(fleet, 0, 5)
    fleet.run_until_copied()
    fleet.turns(50)
    assert partition not in former.copier.holder.owned
    sent = len(fleet.target.logs[K0].taken)
    put(fleet, 0, 5)
    fleet.run_until_copied()
    fleet.turns(50)
    assert len(fleet.target.logs[K0].taken) - sent <= 5
    stored = Provenance.decode(fleet.ledger.read(K0).metadata)
    assert stored is not None
    assert stored.worker == "w2"
