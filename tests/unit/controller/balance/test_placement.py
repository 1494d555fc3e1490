"""Placement: counts even within one, fewest moves, topics spread, deterministic."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from ureplicator_common.model import Partition, Route, TopicKey, WorkerId
from ureplicator_controller.core.balance.even_counts import even_counts
from ureplicator_controller.core.balance.placement import Placement
from ureplicator_controller.core.balance.pools import one_pool

ROUTE = Route("a", "b")
WORKERS = [WorkerId(f"w{number}") for number in range(6)]


def key(topic: str) -> TopicKey:
    return TopicKey(ROUTE, topic)


def placement_of(counts: list[int], *, away: int = 0, topics: int = 3) -> Placement:
    """Workers with these partition counts; the last `away` of them are absent within the delay."""
    present = len(counts) - away
    placement = Placement(one_pool(WORKERS[:present], WORKERS[present : len(counts)]))
    number = 0
    for worker, count in zip(WORKERS, counts, strict=False):
        for _ in range(count):
            topic = f"t{number % topics}"
            placement.add_movable(worker, key(topic), Partition(ROUTE, topic, number))
            number += 1
    return placement


def test_even_fleet_is_not_changed() -> None:
    for counts in ([3, 3, 3], [4, 3, 3], [3, 4, 3], [0, 0], [1]):
        assert even_counts(placement_of(counts)) == {}


def test_joined_worker_gets_its_share_with_the_reason() -> None:
    moves = even_counts(placement_of([4, 4, 0]))
    assert len(moves) == 2
    assert {move.reason for move in moves.values()} == {"joined: share of w2"}


def test_uneven_counts_are_balanced_between_workers_that_own() -> None:
    moves = even_counts(placement_of([5, 1]))
    assert [move.reason for move in moves.values()] == ["balance: share of w1"] * 2


def test_partitions_of_a_topic_are_spread() -> None:
    placement = Placement(one_pool(WORKERS[:3]))
    for topic in ("big", "small"):
        for number in range(6 if topic == "big" else 3):
            placement.place(key(topic), Partition(ROUTE, topic, number))
    for topic in ("big", "small"):
        spread = {len(placement.movable[key(topic)][worker]) for worker in WORKERS[:3]}
        assert len(spread) == 1


def test_ties_are_broken_by_name() -> None:
    placement = Placement(one_pool(WORKERS[:3]))
    given = [placement.place(key("t"), Partition(ROUTE, "t", number)) for number in range(3)]
    assert given == WORKERS[:3]


@given(st.lists(st.integers(0, 30), min_size=1, max_size=6), st.integers(1, 5))
def test_fewest_moves_lead_to_even_counts(counts: list[int], topics: int) -> None:
    placement = placement_of(counts, topics=topics)
    moves = even_counts(placement)
    after = [placement.counts[worker] for worker in WORKERS[: len(counts)]]
    assert max(after) - min(after) <= 1
    assert sum(after) == sum(counts)
    base, extra = divmod(sum(counts), len(counts))
    quotas = [base + (place < extra) for place in range(len(counts))]
    min_moves = sum(
        max(0, count - quota)
        for count, quota in zip(sorted(counts, reverse=True), quotas, strict=True)
    )
    assert len(moves) == min_moves


@given(st.lists(st.integers(0, 30), min_size=2, max_size=6), st.data())
def test_delayed_worker_neither_loses_nor_gets_partitions(
    counts: list[int], data: st.DataObject
) -> None:
    away = data.draw(st.integers(1, len(counts) - 1))
    placement = placement_of(counts, away=away)
    owner = {
        partition: worker
        for topic in placement.movable.values()
        for worker, partitions in topic.items()
        for partition in partitions
    }
    moves = even_counts(placement)
    absent = set(WORKERS[len(counts) - away : len(counts)])
    fair = -(-sum(counts) // len(counts))
    taken = Counter(owner[partition] for partition in moves)
    for partition, move in moves.items():
        assert move.worker not in absent
        assert owner[partition] not in absent
        assert move.worker != owner[partition]
    for worker, count in taken.items():
        assert counts[WORKERS.index(worker)] - count >= fair - 1, "never below its fair share"
