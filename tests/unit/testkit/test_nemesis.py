"""Two faults that are drawn: different kinds, the same ones for a seed, with the writers that they hit."""

import random
import re
from collections.abc import Iterator, Sequence
from unittest.mock import MagicMock, patch

import pytest

from ureplicator_testkit.fleet import nemesis
from ureplicator_testkit.fleet.nemesis import CLUSTERS, Nemesis
from ureplicator_testkit.histories.repeats import Lost, late, lost

WORKERS = ("w1", "w2")
SEEDS = range(100)
LONGEST_S = 10.0
BEFORE = 7
"""Number of the last event before the faults."""
LATE = re.compile(r"freeze w|freeze the target|off from ZooKeeper|off from the target \(up")
"""Names of faults after which requests of a replaced writer may arrive."""


@pytest.fixture(autouse=True)
def _processes() -> Iterator[None]:
    with patch.object(nemesis, "pids_of", return_value=[1]), patch.object(nemesis, "kill"):
        yield


def drawn(seed: int, *, expired: Sequence[str] = ()) -> Nemesis:
    """`expired`: workers whose sessions end after it has begun."""
    fleet, site = MagicMock(), MagicMock()
    fleet.workers = {id: MagicMock() for id in WORKERS}
    fleet.controllers = {"c1": MagicMock()}
    fleet.links = {id: MagicMock() for id in WORKERS}
    fleet.leader.return_value = "c1"
    fleet.status.return_value = {"slots": [{"pid": 1}]}
    fleet.ended_sessions.side_effect = lambda since: (
        set(expired) if since == BEFORE else set(WORKERS)
    )
    fleet.last_event.return_value = BEFORE
    site.zookeeper.members = [MagicMock()]
    dice = random.Random(seed)  # noqa: S311
    return Nemesis(fleet, site, dice, longest_s=LONGEST_S)


def test_a_seed_draws_the_same_two_faults_again() -> None:
    for seed in SEEDS:
        one = drawn(seed)
        assert str(one) == str(drawn(seed))
        assert 1 <= one.lasts_s <= LONGEST_S
        assert len({fault.name for fault in one.faults}) == 2


def test_every_fault_is_drawn_on_every_worker_and_cluster() -> None:
    names = " ".join(str(drawn(seed)) for seed in SEEDS)
    for part in ("kill", "freeze", "cut"):
        for id in WORKERS:
            assert f"{part} {id}" in names
    for end in CLUSTERS:
        assert f"freeze the {end}" in names
        assert f"off from the {end}" in names
    for rest in ("the leader c1", "the copier of w1", "the JVM of w2", "a ZooKeeper server"):
        assert rest in names


def test_the_writers_of_both_faults_may_have_repeated() -> None:
    for seed in SEEDS:
        one = drawn(seed)
        one.begin()
        hit = {id for id in WORKERS if id in str(one)}
        is_late = any(LATE.search(fault.name) for fault in one.faults)
        assert one.repeats() == Lost(frozenset(hit), late=is_late)


@pytest.mark.parametrize(
    ("expired", "wanted"),
    [
        ((), lost("w1")),
        (("w1",), lost("w1")),
        (("w2",), late("w1", "w2")),
    ],
)
def test_a_writer_whose_session_ended_by_the_way_may_have_repeated_late(
    expired: Sequence[str], wanted: Lost
) -> None:
    """One that was killed has nothing more under way."""
    seed = next(
        seed for seed in SEEDS if str(drawn(seed)).startswith("kill w1 and kill the leader")
    )
    one = drawn(seed, expired=expired)
    one.begin()
    assert one.repeats() == wanted
