"""Placement: the choice of a worker for each partition, and even counts.

Hard goal: only eligible workers. Soft goals, in this order:

1. fewest moves: a partition that can stay is not moved;
2. even counts: workers differ by one at most (once joins have settled);
3. even bytes per second, as measured: of the workers with the lowest count, the one that copies least,
   where the difference matters. Moves for even counts are chosen by rate, too (`load_balancing` then
   reduces what is left without changing the counts);
4. spread topics: of equally loaded workers, the one with fewest partitions of the topic;
5. ties by sorted name, so that two leaders decide the same.

A partition without an owner goes to a worker with the lowest count. For even counts, each worker has a
quota: of n workers with T partitions, T mod n have T div n + 1, the fullest ones first, the others
T div n. Partitions above a quota are moved to the lowest counts, no more than there is room for below
the quotas: so the number of moves is the least that leads to even counts.

A worker whose rebalance delay runs keeps its partitions and its share of the quotas, but neither gives
nor gets any: a worker that joins meanwhile does not get that share, and the return moves nothing.

Workers are kept in buckets by count, so that a placement costs the same in small and big fleets.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from ureplicator_common.model import Partition, TopicKey, WorkerId
from ureplicator_controller.core.state.loads import NEGLIGIBLE_BYTES_PER_S, Rates

LOAD_LEVEL = 0.1
"""Fraction of the average load: workers that differ by less count as equally loaded."""


@dataclass(frozen=True, slots=True)
class Move:
    """New owner of a partition (None: no owner), with the reason.

    `no_progress`: it moves because it makes no progress on its worker.
    """

    worker: WorkerId | None
    reason: str
    no_progress: bool = False


class Placement:
    """Partitions by owner, in total and per topic. Lives for one plan.

    `eligible` workers may get partitions; `counted` ones have a share of the quotas.
    """

    def __init__(self, eligible: Sequence[WorkerId], counted: Iterable[WorkerId]) -> None:
        self.eligible = tuple(eligible)
        self.counts: dict[WorkerId, int] = dict.fromkeys((*eligible, *counted), 0)
        self._movable: dict[TopicKey, dict[WorkerId, list[Partition]]] = {}
        self._sizes: dict[TopicKey, int] = {}
        self._buckets: dict[int, list[WorkerId]] = {}
        """Eligible workers by count, sorted by rank; empty until they are sorted in."""
        self._lowest_count = 0
        self._estimate = _LoadEstimate()

    def add_fixed(self, worker: WorkerId) -> None:
        """Count a partition that must not be moved."""
        if worker in self.counts:
            self.counts[worker] += 1

    def add_movable(self, worker: WorkerId, key: TopicKey, partition: Partition) -> None:
        """Count a partition that may be moved (if its worker is eligible)."""
        self.add_fixed(worker)
        self._movable.setdefault(key, {}).setdefault(worker, []).append(partition)
        self._sizes[key] = self._sizes.get(key, 0) + 1

    def owned(self) -> dict[WorkerId, list[Partition]]:
        """Movable partitions of each eligible worker."""
        owned: dict[WorkerId, list[Partition]] = {worker: [] for worker in self.eligible}
        for topic in self._movable.values():
            for worker, partitions in topic.items():
                if worker in owned:
                    owned[worker].extend(partitions)
        return owned

    def use_rates(self, rates: Rates) -> None:
        """Consider rates from now on."""
        self._estimate = _LoadEstimate(self.owned(), rates)
        self._buckets = {}

    def rate(self, partition: Partition) -> float:
        """Estimated bytes per second of a partition."""
        return self._estimate.rate(partition)

    def place(self, key: TopicKey, partition: Partition) -> WorkerId:
        """Choose the best eligible worker and count the partition for it. There must be one."""
        bucket = self._lowest_bucket()
        enough = self._sizes.get(key, 0) // len(self.eligible)
        best = self._fewest_of(self._movable.get(key, {}), bucket, enough)
        bucket.remove(best)
        self.add_movable(best, key, partition)
        self._estimate.add(best, self._estimate.rate(partition))
        insort(self._bucket(self.counts[best]), best, key=self._rank)
        return best

    def _rank(self, worker: WorkerId) -> tuple[int, WorkerId]:
        return self._estimate.level(worker), worker

    def _bucket(self, count: int) -> list[WorkerId]:
        return self._buckets.setdefault(count, [])

    def _lowest_bucket(self) -> list[WorkerId]:
        if not self._buckets:
            self._sort_eligible()
        while not self._bucket(self._lowest_count):
            self._lowest_count += 1
        return self._bucket(self._lowest_count)

    def _sort_eligible(self) -> None:
        for worker in sorted(self.eligible, key=self._rank):
            self._bucket(self.counts[worker]).append(worker)
        self._lowest_count = min(self._buckets)

    def _fewest_of(
        self,
        topic: Mapping[WorkerId, Sequence[Partition]],
        bucket: Sequence[WorkerId],
        enough: int,
    ) -> WorkerId:
        """The first of the least loaded workers with fewest partitions of the topic.

        `enough` is the topic evenly divided: fewer are not required, so the search ends there.
        """
        best, fewest, lowest = bucket[0], -1, self._estimate.level(bucket[0])
        for worker in bucket:
            if self._estimate.level(worker) > lowest:
                break
            count = len(topic.get(worker, ()))
            if count <= enough:
                return worker
            if fewest < 0 or count < fewest:
                best, fewest = worker, count
        return best

    def is_even(self) -> bool:
        """True if no eligible worker is above its quota."""
        quotas = self._quotas()
        return all(self.counts[worker] <= quotas[worker] for worker in self.eligible)

    def take_excess(self) -> list[Partition]:
        """Remove partitions above the quotas, the fullest workers first, as far as others have room."""
        quotas = self._quotas()
        room = sum(max(0, quotas[worker] - self.counts[worker]) for worker in self.eligible)
        if not room or all(self.counts[worker] <= quotas[worker] for worker in self.eligible):
            return []
        topics, owned = self._topics(), self.owned()
        taken: list[Partition] = []
        for worker in self._fullest_first(self.eligible):
            excess = min(self.counts[worker] - quotas[worker], room - len(taken))
            if self._estimate.matters:
                taken.extend(self._take_by_rate(worker, excess, owned[worker]))
            else:
                taken.extend(self._take_by_topic(worker, excess, topics[worker]))
        self._buckets = {}
        return taken

    def _topics(self) -> dict[WorkerId, list[tuple[int, TopicKey]]]:
        """Topics of each eligible worker, for a heap: most partitions first."""
        topics: dict[WorkerId, list[tuple[int, TopicKey]]] = {
            worker: [] for worker in self.eligible
        }
        for key, topic in self._movable.items():
            for worker, partitions in topic.items():
                if worker in topics:
                    topics[worker].append((-len(partitions), key))
        return topics

    def _fullest_first(self, workers: Iterable[WorkerId]) -> list[WorkerId]:
        return sorted(workers, key=lambda worker: (-self.counts[worker], worker))

    def _quotas(self) -> dict[WorkerId, int]:
        """Number of partitions that each worker may have."""
        base, extra = divmod(sum(self.counts.values()), len(self.counts))
        fullest = self._fullest_first(self.counts)
        return {worker: base + (place < extra) for place, worker in enumerate(fullest)}

    def _take_by_topic(
        self, worker: WorkerId, excess: int, topics: list[tuple[int, TopicKey]]
    ) -> Iterator[Partition]:
        """Remove partitions of the topics with most partitions first."""
        if excess > 0:
            heapify(topics)
        while excess > 0 and topics:
            count, key = heappop(topics)
            yield self._taken(worker, self._movable[key][worker].pop())
            excess -= 1
            if count < -1:
                heappush(topics, (count + 1, key))

    def _take_by_rate(
        self, worker: WorkerId, excess: int, owned: Sequence[Partition]
    ) -> Iterator[Partition]:
        """Remove partitions so that the load of the rest is near the average."""
        rated = sorted((self._estimate.rate(each), each) for each in owned)
        while excess > 0 and rated:
            wanted = (self._estimate.loads[worker] - self._estimate.average) / excess
            at = min(bisect_left(rated, wanted, key=lambda each: each[0]), len(rated) - 1)
            if at > 0 and wanted - rated[at - 1][0] <= rated[at][0] - wanted:
                at -= 1
            partition = rated.pop(at)[1]
            self._movable[partition.key][worker].remove(partition)
            yield self._taken(worker, partition)
            excess -= 1

    def _taken(self, worker: WorkerId, partition: Partition) -> Partition:
        self._sizes[partition.key] -= 1
        self.counts[worker] -= 1
        self._estimate.add(worker, -self._estimate.rate(partition))
        return partition


class _LoadEstimate:
    """Load of each eligible worker. An unknown rate counts as the average rate; without rates all are 0."""

    def __init__(
        self,
        owned: Mapping[WorkerId, Sequence[Partition]] | None = None,
        rates: Rates | None = None,
    ) -> None:
        self._rates = {
            partition: rate
            for entries in (rates or {}).values()
            for partition, rate in entries.items()
        }
        self._average_rate = sum(self._rates.values()) / len(self._rates) if self._rates else 0.0
        self.loads = {
            worker: sum(self.rate(partition) for partition in partitions)
            for worker, partitions in (owned or {}).items()
        }
        self.average = sum(self.loads.values()) / max(1, len(self.loads))
        self.matters = self.average > NEGLIGIBLE_BYTES_PER_S
        self._step = max(self.average * LOAD_LEVEL, NEGLIGIBLE_BYTES_PER_S)

    def rate(self, partition: Partition) -> float:
        return self._rates.get(partition, self._average_rate)

    def level(self, worker: WorkerId) -> int:
        """Load in steps: workers on the same level count as equally loaded."""
        return int(self.loads.get(worker, 0.0) // self._step)

    def add(self, worker: WorkerId, rate: float) -> None:
        if worker in self.loads:
            self.loads[worker] += rate


def even_counts(placement: Placement) -> dict[Partition, Move]:
    """Move as few partitions as lead to even counts."""
    if not placement.eligible:
        return {}
    joined = {worker for worker in placement.eligible if placement.counts[worker] == 0}
    moves: dict[Partition, Move] = {}
    for partition in placement.take_excess():
        worker = placement.place(partition.key, partition)
        kind = "joined" if worker in joined else "balance"
        moves[partition] = Move(worker, f"{kind}: share of {worker}")
    return moves
