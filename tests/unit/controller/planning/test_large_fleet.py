"""ZooKeeper writes of a rebalance: they grow with the moves, not with the fleet."""

from __future__ import annotations

from ureplicator_testkit.control.large_fleet import LargeFleet, SettlingCost
from ureplicator_testkit.control.manual_controllers import REBALANCE_S

WRITES_PER_MOVE = 6.0
"""Ideal state and assignments of both workers, at assignment and at completion; the history."""


def lost(*, workers: int, topics: int, dead: int) -> SettlingCost:
    """Cost of the rebalance after this many workers were lost."""
    crowd = LargeFleet(topics=topics, partitions=4)
    crowd.join(workers)
    crowd.settle()
    crowd.die(dead)
    return crowd.settle()


def test_only_partitions_of_the_lost_worker_move_and_only_once() -> None:
    settling = lost(workers=10, topics=25, dead=1)
    assert settling.moves == 10
    assert settling.virtual_s < REBALANCE_S + 1


def test_writes_grow_with_the_moves() -> None:
    for factor in (1, 2, 4):
        settling = lost(workers=10 * factor, topics=25 * factor, dead=factor)
        assert settling.moves == 10 * factor
        assert settling.writes <= WRITES_PER_MOVE * settling.moves


def test_cost_of_a_lost_worker_does_not_grow_with_the_fleet() -> None:
    small = lost(workers=10, topics=25, dead=1)
    big = lost(workers=40, topics=100, dead=1)
    assert big.moves == small.moves
    assert big.writes <= small.writes * 1.5
