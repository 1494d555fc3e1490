"""Where partitions go: goals in order, and a reason for every move.

Hard: only workers that may take partitions. Soft, in this order:

1. fewest moves: nothing is moved that can stay;
2. even counts: workers differ by one at most (once joins have settled);
3. even bytes per second, as measured: of workers with the lowest count, the one that copies least,
   where the difference matters; what is moved for the counts' sake is chosen by its rate, too
   (`levelling` then evens out what is left, without touching the counts);
4. a topic's partitions spread: of equally loaded workers, the one with fewest of the topic;
5. ties by sorted name, so that two leaders would decide the same.

A partition without owner goes to a worker with the lowest count. To even out, each worker has a
quota: of n workers with T partitions, T mod n may have T div n + 1, the fullest ones first, the
others T div n. What is above a quota is moved to the lowest counts, no more than there is room for
below the quotas: so the number of moves is the least that leads to even counts.

A worker that is away keeps its partitions and its share of the quotas, but gives and takes
nothing: others are not stripped for a newcomer as if it were gone for good, and its return moves
nothing.

Workers are kept sorted by count in buckets, so that placing costs the same in small and big
fleets.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from ureplicator_common.model import Partition, TopicKey, WorkerId
from ureplicator_controller.core.state.loads import NEGLIGIBLE_BYTES_PER_S, Rates

LOAD_LEVEL = 0.1
"""Of the average load: workers that differ by less copy as much as each other."""


@dataclass(frozen=True, slots=True)
class Move:
    """A partition's new owner (None: nobody), and why. `no_progress`: because it makes no progress."""

    worker: WorkerId | None
    reason: str
    no_progress: bool = False


class Placement:
    """Who owns how many partitions, altogether and of each topic. Lives for one plan."""

    def __init__(self, takers: Sequence[WorkerId], away: Iterable[WorkerId]) -> None:
        self.takers = tuple(takers)
        self.counts: dict[WorkerId, int] = dict.fromkeys((*takers, *away), 0)
        self._movable: dict[TopicKey, dict[WorkerId, list[Partition]]] = {}
        self._sizes: dict[TopicKey, int] = {}
        self._buckets: dict[int, list[WorkerId]] = {}
        """Takers by count, sorted by rank; empty: not sorted in yet."""
        self._lowest = 0
        self._scale = _LoadEstimate()

    def count(self, worker: WorkerId) -> None:
        """The worker owns a partition that must not be moved."""
        if worker in self.counts:
            self.counts[worker] += 1

    def own(self, worker: WorkerId, key: TopicKey, partition: Partition) -> None:
        """The worker owns a partition that may be moved (unless the worker is away)."""
        self.count(worker)
        self._movable.setdefault(key, {}).setdefault(worker, []).append(partition)
        self._sizes[key] = self._sizes.get(key, 0) + 1

    def owned(self) -> dict[WorkerId, list[Partition]]:
        """What each taker has that may be moved."""
        owned: dict[WorkerId, list[Partition]] = {worker: [] for worker in self.takers}
        for topic in self._movable.values():
            for worker, partitions in topic.items():
                if worker in owned:
                    owned[worker].extend(partitions)
        return owned

    def weigh(self, rates: Rates) -> None:
        """From now on rates count, too."""
        self._scale = _LoadEstimate(self.owned(), rates)
        self._buckets = {}

    def rate(self, partition: Partition) -> float:
        """What it probably copies."""
        return self._scale.rate(partition)

    def give(self, key: TopicKey, partition: Partition) -> WorkerId:
        """The best taker, which owns the partition from now on. There must be a taker."""
        bucket = self._lowest_bucket()
        enough = self._sizes.get(key, 0) // len(self.takers)
        best = self._fewest_of(self._movable.get(key, {}), bucket, enough)
        bucket.remove(best)
        self.own(best, key, partition)
        self._scale.add(best, self._scale.rate(partition))
        insort(self._at(self.counts[best]), best, key=self._rank)
        return best

    def _rank(self, worker: WorkerId) -> tuple[int, WorkerId]:
        return self._scale.level(worker), worker

    def _at(self, level: int) -> list[WorkerId]:
        return self._buckets.setdefault(level, [])

    def _lowest_bucket(self) -> list[WorkerId]:
        if not self._buckets:
            self._sort_takers()
        while not self._at(self._lowest):
            self._lowest += 1
        return self._at(self._lowest)

    def _sort_takers(self) -> None:
        for worker in sorted(self.takers, key=self._rank):
            self._at(self.counts[worker]).append(worker)
        self._lowest = min(self._buckets)

    def _fewest_of(
        self,
        topic: Mapping[WorkerId, Sequence[Partition]],
        bucket: Sequence[WorkerId],
        enough: int,
    ) -> WorkerId:
        """Of the least loaded workers the first with fewest of the topic.

        `enough` is the topic evenly divided: nobody need have less, so the search ends there.
        """
        best, fewest, lowest = bucket[0], -1, self._scale.level(bucket[0])
        for worker in bucket:
            if self._scale.level(worker) > lowest:
                break
            count = len(topic.get(worker, ()))
            if count <= enough:
                return worker
            if fewest < 0 or count < fewest:
                best, fewest = worker, count
        return best

    def is_even(self) -> bool:
        """Whether `take_excess` would find nothing."""
        quotas = self._quotas()
        return all(self.counts[worker] <= quotas[worker] for worker in self.takers)

    def take_excess(self) -> list[Partition]:
        """Take from the fullest what has room elsewhere."""
        quotas = self._quotas()
        room = sum(max(0, quotas[worker] - self.counts[worker]) for worker in self.takers)
        if not room or all(self.counts[worker] <= quotas[worker] for worker in self.takers):
            return []
        topics, owned = self._topics(), self.owned()
        taken: list[Partition] = []
        for worker in self._fullest_first(self.takers):
            excess = min(self.counts[worker] - quotas[worker], room - len(taken))
            if self._scale.matters:
                taken.extend(self._take_by_rate(worker, excess, owned[worker]))
            else:
                taken.extend(self._take_by_topic(worker, excess, topics[worker]))
        self._buckets = {}
        return taken

    def _topics(self) -> dict[WorkerId, list[tuple[int, TopicKey]]]:
        """Per taker its topics, as a heap: most partitions first."""
        topics: dict[WorkerId, list[tuple[int, TopicKey]]] = {worker: [] for worker in self.takers}
        for key, topic in self._movable.items():
            for worker, partitions in topic.items():
                if worker in topics:
                    topics[worker].append((-len(partitions), key))
        return topics

    def _fullest_first(self, workers: Iterable[WorkerId]) -> list[WorkerId]:
        return sorted(workers, key=lambda worker: (-self.counts[worker], worker))

    def _quotas(self) -> dict[WorkerId, int]:
        base, extra = divmod(sum(self.counts.values()), len(self.counts))
        fullest = self._fullest_first(self.counts)
        return {worker: base + (place < extra) for place, worker in enumerate(fullest)}

    def _take_by_topic(
        self, worker: WorkerId, excess: int, topics: list[tuple[int, TopicKey]]
    ) -> Iterator[Partition]:
        """Most frequent topics first."""
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
        """So that what is left is near the average."""
        rated = sorted((self._scale.rate(each), each) for each in owned)
        while excess > 0 and rated:
            wanted = (self._scale.loads[worker] - self._scale.average) / excess
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
        self._scale.add(worker, -self._scale.rate(partition))
        return partition


class _LoadEstimate:
    """What each taker copies. Of a partition of which nothing is known: what is usual. Without any
    rates all weigh nothing."""

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
        self._usual = sum(self._rates.values()) / len(self._rates) if self._rates else 0.0
        self.loads = {
            worker: sum(self.rate(partition) for partition in partitions)
            for worker, partitions in (owned or {}).items()
        }
        self.average = sum(self.loads.values()) / max(1, len(self.loads))
        self.matters = self.average > NEGLIGIBLE_BYTES_PER_S
        self._step = max(self.average * LOAD_LEVEL, NEGLIGIBLE_BYTES_PER_S)

    def rate(self, partition: Partition) -> float:
        return self._rates.get(partition, self._usual)

    def level(self, worker: WorkerId) -> int:
        """Workers of one level copy as much as each other, as far as that matters."""
        return int(self.loads.get(worker, 0.0) // self._step)

    def add(self, worker: WorkerId, rate: float) -> None:
        if worker in self.loads:
            self.loads[worker] += rate


def even_counts(board: Placement) -> dict[Partition, Move]:
    """The fewest moves to even counts."""
    if not board.takers:
        return {}
    newcomers = {worker for worker in board.takers if board.counts[worker] == 0}
    moves: dict[Partition, Move] = {}
    for partition in board.take_excess():
        worker = board.give(partition.key, partition)
        kind = "joined" if worker in newcomers else "balance"
        moves[partition] = Move(worker, f"{kind}: share of {worker}")
    return moves
