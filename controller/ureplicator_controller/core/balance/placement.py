"""Placement: the choice of a worker for each partition, and even counts.

Hard goal: only eligible workers of the route's pool (`pools`). Soft goals, in this order:

1. fewest moves: a partition that can stay is not moved;
2. even counts for each slot: workers of equal slots differ by one at most (once joins have settled), and
   one with eight times the slots gets eight times as many;
3. even bytes per second for each slot, as measured: of the workers with the lowest count, the one that
   copies least, where the difference matters. Moves for even counts are chosen by rate, too
   (`load_balancing` then reduces what is left without changing the counts);
4. spread topics: of equally loaded workers, one in the zone with fewest partitions of the topic, and there
   the one with fewest;
5. ties by sorted name, so that two leaders decide the same.

A partition without an owner goes to the worker that is filled least with it: its count divided by its slots.
For even counts, each worker has a quota in each of its pools (`quotas`), and partitions above it are moved to
workers below theirs (`even_counts`).

A worker whose rebalance delay runs keeps its partitions and its share of the quotas, but neither gives
nor gets any: a worker that joins meanwhile does not get that share, and the return moves nothing.

Each pool keeps its workers sorted by what they have; a placement moves one of them to its new place.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ureplicator_common.model import Partition, Route, TopicKey, WorkerId
from ureplicator_controller.core.balance.load_estimate import LoadEstimate
from ureplicator_controller.core.balance.pools import Pool, Pools
from ureplicator_controller.core.state.loads import Rates

FILL_UNIT = 720_720
"""Divisible by all numbers of slots up to 16: fills of workers are compared as whole numbers."""

Rank = tuple[int, int, int, WorkerId]
"""Fill with the route's own partitions, if it is alone in its pool; fill; level of the load; name."""


@dataclass(frozen=True, slots=True)
class Move:
    """New owner of a partition (None: no owner), with the reason.

    `no_progress`: it moves because it makes no progress on its worker.
    """

    worker: WorkerId | None
    reason: str
    no_progress: bool = False


class Placement:
    """Partitions by owner, in total, per pool and per topic. Lives for one plan."""

    def __init__(self, pools: Pools) -> None:
        self.pools = pools
        counted = (worker for pool in pools.each for worker in pool.counted)
        self.counts: dict[WorkerId, int] = dict.fromkeys(counted, 0)
        self.has_several = len(pools.each) > 1
        self.pool_counts = (
            [dict.fromkeys(pool.counted, 0) for pool in pools.each]
            if self.has_several
            else [self.counts]
        )
        self._eligible = [frozenset(pool.eligible) for pool in pools.each]
        self.movable: dict[TopicKey, dict[WorkerId, list[Partition]]] = {}
        self._spread = _Spread(pools)
        self._sorted: list[list[Rank]] = [[] for _ in pools.each]
        """Eligible workers of each pool by rank; empty until they are sorted in."""
        self.estimate = self._estimated({})

    def add_fixed(self, worker: WorkerId, route: Route, number: int = 1) -> None:
        """Count partitions that must not be moved, or not yet: see `make_movable`."""
        if worker in self.counts:
            self._count(worker, route, number)

    def _count(self, worker: WorkerId, route: Route, number: int) -> None:
        self.counts[worker] += number
        if self.has_several:
            of_pool = self.pool_counts[self.pools.number_of(route)]
            if worker in of_pool:
                of_pool[worker] += number

    def add_movable(self, worker: WorkerId, key: TopicKey, partition: Partition) -> None:
        """Count a partition that may be moved (if its worker is eligible)."""
        if worker in self.counts:
            self._count(worker, key.route, 1)
        self.make_movable(worker, key, partition)

    def make_movable(self, worker: WorkerId, key: TopicKey, partition: Partition) -> None:
        """Have a partition moved where that is of use; it is counted already."""
        self.movable.setdefault(key, {}).setdefault(worker, []).append(partition)
        if self._spread.has_zones:
            self._spread.add(worker, key, 1)

    def owned(self, pool: Pool | None = None) -> dict[WorkerId, list[Partition]]:
        """Movable partitions of each eligible worker; only those of one pool, if it is given."""
        pools = self.pools.each if pool is None else (pool,)
        owned: dict[WorkerId, list[Partition]] = {
            worker: [] for chosen in pools for worker in chosen.eligible
        }
        for key, topic in self.movable.items():
            if pool is None or self.pools.of(key.route) is pool:
                for worker, partitions in topic.items():
                    if worker in owned:
                        owned[worker].extend(partitions)
        return owned

    def use_rates(self, rates: Rates) -> None:
        """Consider rates from now on."""
        self.estimate = self._estimated(rates)
        self.unsort()

    def _estimated(self, rates: Rates) -> LoadEstimate:
        eligible = dict.fromkeys(worker for pool in self.pools.each for worker in pool.eligible)
        slots = {worker: self.pools.offer(worker).slots for worker in eligible}
        return LoadEstimate({worker: self.counts[worker] for worker in eligible}, slots, rates)

    def rate(self, partition: Partition) -> float:
        """Estimated bytes per second of a partition."""
        return self.estimate.rate(partition)

    # One partition.

    def can_place(self, route: Route) -> bool:
        """True if any worker may get a partition of the route."""
        return bool(self.pools.of(route).eligible)

    def is_member(self, worker: WorkerId, route: Route) -> bool:
        """True if the worker may keep partitions of the route."""
        return worker in self.pool_counts[self.pools.number_of(route)]

    def place(
        self,
        key: TopicKey,
        partition: Partition,
        has_room: Callable[[WorkerId], bool] = lambda _: True,
    ) -> WorkerId:
        """Choose the best eligible worker that has room and count the partition for it; there must be one."""
        number = self.pools.number_of(key.route)
        candidates = self._candidates(number)
        alike = _first_alike(candidates, has_room)
        topic = self.movable.get(key, {})
        best = self._spread.fewest(key, topic, alike, among=len(candidates))
        self._remove(best)
        self.add_movable(best, key, partition)
        self._spread.resize(key, 1)
        self.estimate.add(best, self.estimate.rate(partition))
        self._insert(best)
        return best

    def _candidates(self, number: int) -> list[Rank]:
        if not self._sorted[number]:
            pool = self.pools.each[number]
            self._sorted[number] = sorted(self._rank(number, worker) for worker in pool.eligible)
        return self._sorted[number]

    def _rank(self, number: int, worker: WorkerId) -> Rank:
        slots = self.pools.offer(worker).slots
        own = self.pool_counts[number][worker] if self.pools.each[number].is_alone else 0
        fill = (self.counts[worker] + 1) * FILL_UNIT // slots
        return own * FILL_UNIT // slots, fill, self.estimate.level(worker), worker

    def _remove(self, worker: WorkerId) -> None:
        """Take a worker out of the sorted lists, while its rank is still the one it was sorted by."""
        for number, candidates in enumerate(self._sorted):
            if candidates and worker in self.pool_counts[number]:
                at = bisect_left(candidates, self._rank(number, worker))
                if at < len(candidates) and candidates[at][-1] == worker:
                    del candidates[at]

    def _insert(self, worker: WorkerId) -> None:
        for number, candidates in enumerate(self._sorted):
            if candidates and worker in self._eligible[number]:
                insort(candidates, self._rank(number, worker))

    def unsort(self) -> None:
        self._sorted = [[] for _ in self.pools.each]

    def take(self, worker: WorkerId, partition: Partition) -> None:
        """Count the partition for its worker no more; the caller takes it out of `movable`."""
        if self._spread.has_zones:
            self._spread.add(worker, partition.key, -1)
        self._spread.resize(partition.key, -1)
        self._count(worker, partition.route, -1)
        self.estimate.add(worker, -self.estimate.rate(partition))


def _first_alike(
    candidates: Sequence[Rank], has_room: Callable[[WorkerId], bool]
) -> Iterator[WorkerId]:
    """The best workers that have room: all that differ by the name only."""
    best: tuple[int, int, int] | None = None
    for own, fill, level, worker in candidates:
        if best is not None and best != (own, fill, level):
            return
        if has_room(worker):
            best = own, fill, level
            yield worker


class _Spread:
    """Partitions of each topic, and those in each zone where there are several."""

    def __init__(self, pools: Pools) -> None:
        self._zones = {worker: offer.zone for worker, offer in pools.offers.items()}
        self._zone_names = set(self._zones.values())
        self.has_zones = len(self._zone_names) > 1
        self._sizes: dict[TopicKey, int] = {}
        """Sizes of topics that a partition was placed of."""
        self._by_zone: dict[TopicKey, Counter[str]] = {}

    def add(self, worker: WorkerId, key: TopicKey, number: int) -> None:
        """Count for the zone; needed only if there are several."""
        self._by_zone.setdefault(key, Counter())[self._zones.get(worker, "")] += number

    def resize(self, key: TopicKey, number: int) -> None:
        if key in self._sizes:
            self._sizes[key] += number

    def fewest(
        self,
        key: TopicKey,
        topic: Mapping[WorkerId, Sequence[Partition]],
        workers: Iterable[WorkerId],
        *,
        among: int,
    ) -> WorkerId:
        """The first worker with fewest partitions of the topic, in the zone with fewest.

        An even share, of `among` workers and of all zones, is few enough, so the search ends there.
        """
        by_zone: Mapping[str, int] = self._by_zone.get(key, {})
        size = self._sizes.get(key)
        if size is None:
            size = self._sizes[key] = sum(len(partitions) for partitions in topic.values())
        enough = (size // max(1, len(self._zone_names)), size // among)
        best: tuple[tuple[int, int], WorkerId] | None = None
        for worker in workers:
            found = by_zone.get(self._zones.get(worker, ""), 0), len(topic.get(worker, ()))
            if found[0] <= enough[0] and found[1] <= enough[1]:
                return worker
            if best is None or found < best[0]:
                best = found, worker
        assert best is not None
        return best[1]
