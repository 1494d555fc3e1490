"""Two faults that are drawn: different kinds, the same ones for a seed, with the writers that they hit."""

import random
import re
from collections.abc import Iterator
from unittest.mock import MagicMock, patch

import pytest

from ureplicator_testkit.fleet import nemesis
from ureplicator_testkit.fleet.nemesis import CLUSTERS, Nemesis
from ureplicator_testkit.histories.repeats import Lost

WORKERS = ("w1", "w2")
SEEDS = range(100)
LONGEST_S = 10.0
LATE = re.compile(r"freeze w|freeze the target|off from ZooKeeper|off from the target \(up")
"""Names of faults after which requests of a replaced writer may arrive."""


@pytest.fixture(autouse=True)
def _jvms() -> Iterator[None]:
    with patch.object(nemesis, "pids_of", return_value=[1]):
        yield


def drawn(seed: int) -> Nemesis:
    fleet, site = MagicMock(), MagicMock()
    fleet.workers = {id: MagicMock() for id in WORKERS}
    fleet.controllers = {"c1": MagicMock()}
    fleet.links = {id: MagicMock() for id in WORKERS}
    fleet.leader.return_value = "c1"
    fleet.status.return_value = {"slots": [{"pid": 1}]}
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
        hit = {id for id in WORKERS if id in str(one)}
        late = any(LATE.search(fault.name) for fault in one.faults)
        assert one.repeats == Lost(frozenset(hit), late=late)
