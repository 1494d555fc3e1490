"""Partitions that fail at each try: since when, over moves and leaders; not moved for it."""

from __future__ import annotations

from collections.abc import Callable

from ureplicator_common.model import PartitionState, TopicState, WorkerId
from ureplicator_common.znode_contents import Failing
from ureplicator_controller.core.planning.no_progress import partitions_without_progress
from ureplicator_controller.core.state.external_view import external_view
from ureplicator_controller.core.state.failures import failing_partitions
from ureplicator_controller.core.state.mismatches import Mismatch, mismatches
from ureplicator_testkit.control.fleet import ControlFleet, partition, two_workers
from ureplicator_testkit.control.load_meter import MB, LoadMeter

POISON = partition("t", 0)


def fail(fleet: ControlFleet, *, local: bool = False) -> None:
    """The owner tries once and fails."""
    owner = fleet.entry("t").worker
    assert owner is not None
    process = fleet.process(owner)
    while POISON not in process.added:
        process.catch_up()  # it waits for its next try
    process.fail(POISON, "handler: ValueError (at offset 7)", local=local)
    fleet.settle()


def shown(fleet: ControlFleet) -> list[Mismatch]:
    seen = fleet.snapshot()
    return mismatches(seen, external_view(seen))


def failing_fleet(rates: tuple[float, ...], *, workers: str, local: bool = False) -> LoadMeter:
    """`t/0` makes no progress; partitions have these rates (MB/s)."""
    fleet = ControlFleet()
    for id in workers:
        fleet.worker(id)
    fleet.topic("t", len(rates))
    fleet.settle()
    meter = LoadMeter(fleet, {partition("t", at): rate * MB for at, rate in enumerate(rates)})
    meter.run(6)
    meter.without_progress.add(POISON)
    fail(fleet, local=local)
    return meter


def test_a_mismatch_counts_from_the_first_failure_over_retries_moves_and_leaders() -> None:
    fleet = two_workers()
    fleet.wait(500)
    fail(fleet)
    first_ms = round(fleet.now_s * 1_000)
    (found,) = shown(fleet)
    assert (found.partition, found.since_ms) == (POISON, first_ms)
    changes: list[Callable[[], object]] = [
        lambda: fleet.tag("a", draining=True),
        fleet.elect,
        lambda: fleet.wait(700),
    ]
    for change in changes:
        change()
        fleet.settle()
        fail(fleet)
        (found,) = shown(fleet)
        assert found.since_ms == first_ms
    assert found.actual == {WorkerId("b"): PartitionState.ERROR}
    assert fleet.cycle().steps == (), "it is recorded once"


def test_a_lost_worker_takes_the_time_of_the_first_failure_not_with_it() -> None:
    fleet = two_workers()
    fail(fleet)
    first_ms = shown(fleet)[0].since_ms
    fleet.kill(fleet.process("a"))
    fleet.settle()
    fleet.wait(150)
    fleet.settle()
    fail(fleet)
    (found,) = shown(fleet)
    assert (found.actual, found.since_ms) == ({WorkerId("b"): PartitionState.ERROR}, first_ms)


def test_a_failure_that_is_passed_is_forgotten_and_the_next_one_counts_anew() -> None:
    meter = failing_fleet((1, 1, 1, 1), workers="ab")
    fleet = meter.fleet
    meter.run(3)
    assert fleet.entry("t").failing_since_ms, "it is ONLINE between two tries only"
    meter.without_progress.clear()
    fleet.process("a").succeed(POISON)
    fleet.settle()
    meter.run(2)
    assert (fleet.entry("t").failing_since_ms, shown(fleet)) == (0, [])
    fail(fleet)
    assert shown(fleet)[0].since_ms == round(fleet.now_s * 1_000)


def test_a_new_owner_that_has_not_failed_yet_does_not_end_the_failure() -> None:
    meter = failing_fleet((1, 1, 1, 1), workers="ab")
    fleet = meter.fleet
    since_ms = fleet.entry("t").failing_since_ms
    fleet.tag("a", draining=True)
    fleet.settle()
    meter.run(3)
    assert shown(fleet) == [], "it is ONLINE there until it fails"
    assert fleet.entry("t").failing_since_ms == since_ms


def test_a_topic_that_is_paused_and_resumed_begins_anew() -> None:
    fleet = two_workers()
    fail(fleet)
    fleet.topic("t", 4, state=TopicState.PAUSED)
    fleet.settle()
    fleet.wait(60)
    fleet.topic("t", 4, state=TopicState.ACTIVE)
    fleet.settle()
    assert fleet.entry("t").failing_since_ms == 0


def test_a_failing_partition_is_not_exchanged_to_even_load() -> None:
    """Its rate is zero, which fits nearly any exchange; loads that change would move it again and again."""
    meter = failing_fleet((0, 1, 1, 1, 1, 1), workers="ab")
    fleet = meter.fleet
    others, since_ms = 0, fleet.entry("t").failing_since_ms
    for _ in range(6):
        owners = fleet.owners("t")
        for number in range(1, 6):  # the worker with the failing partition is the light one
            meter.rates[partition("t", number)] = (20 if owners[number] == owners[0] else 30) * MB
        others += meter.run(8)
        assert fleet.owners("t")[0] == "a"
    assert others > 0, "load is balanced by what is copied"
    assert fleet.entry("t").failing_since_ms == since_ms


def test_a_partition_that_fails_anywhere_is_listed_and_not_moved_for_lack_of_progress() -> None:
    meter = failing_fleet((1,) * 6, workers="abc")
    assert failing_partitions(meter.fleet.snapshot()) == {POISON}
    assert meter.run(60) == 0
    seen = meter.fleet.snapshot()
    (listed,) = partitions_without_progress(seen, external_view(seen))
    assert (listed.partition, listed.moves) == (POISON, 0)
    meter.fleet.tag("a", draining=True)
    meter.run(12)
    seen = meter.fleet.snapshot()
    (moved,) = partitions_without_progress(seen, external_view(seen))
    assert (moved.ideal, moved.since_ms) == ("b", listed.since_ms)


def test_a_failure_of_its_worker_moves_it_for_lack_of_progress() -> None:
    meter = failing_fleet((1,) * 6, workers="abc", local=True)
    (entry,) = (
        current
        for stored in meter.fleet.snapshot().current.values()
        for key, current in stored.value.entries.items()
        if key == POISON
    )
    assert entry.failing is Failing.HERE
    assert meter.run(22) == 1
    assert meter.fleet.entry("t").reason == "no progress on a"
