"""Where partitions go: goals in order, and a reason for every move.

Hard: only workers that may take partitions. Soft, in this order:

1. fewest moves: nothing is moved that can stay;
2. even counts: workers differ by one at most (once joins have settled);
3. a topic's partitions spread: of equally loaded workers, the one with fewest of the topic;
4. ties by sorted name, so that two leaders would decide the same.

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

from bisect import insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from ureplicator_common.model import Partition, TopicKey, WorkerId


@dataclass(frozen=True, slots=True)
class Move:
    """A partition's new owner (None: nobody), and why."""

    worker: WorkerId | None
    reason: str


class Board:
    """Who owns how many partitions, altogether and of each topic. Lives for one plan."""

    def __init__(self, takers: Sequence[WorkerId], away: Iterable[WorkerId]) -> None:
        self.takers = tuple(takers)
        self.counts: dict[WorkerId, int] = dict.fromkeys((*takers, *away), 0)
        self._movable: dict[TopicKey, dict[WorkerId, list[Partition]]] = {}
        self._sizes: dict[TopicKey, int] = {}
        self._buckets: dict[int, list[WorkerId]] = {}
        """Takers by count, sorted by name; empty: not sorted in yet."""
        self._lowest = 0

    def count(self, worker: WorkerId) -> None:
        """The worker owns a partition that must not be moved."""
        if worker in self.counts:
            self.counts[worker] += 1

    def own(self, worker: WorkerId, key: TopicKey, partition: Partition) -> None:
        """The worker owns a partition that may be moved (unless the worker is away)."""
        self.count(worker)
        self._movable.setdefault(key, {}).setdefault(worker, []).append(partition)
        self._sizes[key] = self._sizes.get(key, 0) + 1

    def give(self, key: TopicKey, partition: Partition) -> WorkerId:
        """The best taker, which owns the partition from now on. There must be a taker."""
        bucket = self._lowest_bucket()
        enough = self._sizes.get(key, 0) // len(self.takers)
        best = self._fewest_of(self._movable.get(key, {}), bucket, enough)
        bucket.remove(best)
        insort(self._at(self._lowest + 1), best)
        self.own(best, key, partition)
        return best

    def _at(self, level: int) -> list[WorkerId]:
        return self._buckets.setdefault(level, [])

    def _lowest_bucket(self) -> list[WorkerId]:
        if not self._buckets:
            self._sort_takers()
        while not self._at(self._lowest):
            self._lowest += 1
        return self._at(self._lowest)

    def _sort_takers(self) -> None:
        for worker in sorted(self.takers):
            self._at(self.counts[worker]).append(worker)
        self._lowest = min(self._buckets)

    def _fewest_of(
        self,
        topic: Mapping[WorkerId, Sequence[Partition]],
        bucket: Sequence[WorkerId],
        enough: int,
    ) -> WorkerId:
        """Of equally loaded workers the first with fewest of the topic.

        `enough` is the topic evenly divided: nobody need have less, so the search ends there.
        """
        best, fewest = bucket[0], -1
        for worker in bucket:
            count = len(topic.get(worker, ()))
            if count <= enough:
                return worker
            if fewest < 0 or count < fewest:
                best, fewest = worker, count
        return best

    def take_excess(self) -> list[Partition]:
        """Take from the fullest what has room elsewhere, most frequent topics first."""
        quotas = self._quotas()
        room = sum(max(0, quotas[worker] - self.counts[worker]) for worker in self.takers)
        if not room or all(self.counts[worker] <= quotas[worker] for worker in self.takers):
            return []
        owned = self._owned()
        taken: list[Partition] = []
        for worker in self._fullest_first(self.takers):
            excess = min(self.counts[worker] - quotas[worker], room - len(taken))
            taken.extend(self._take(worker, excess, owned[worker]))
        self._buckets = {}
        return taken

    def _owned(self) -> dict[WorkerId, list[tuple[int, TopicKey]]]:
        """Per taker its topics, as a heap: most partitions first."""
        owned: dict[WorkerId, list[tuple[int, TopicKey]]] = {worker: [] for worker in self.takers}
        for key, topic in self._movable.items():
            for worker, partitions in topic.items():
                if worker in owned:
                    owned[worker].append((-len(partitions), key))
        return owned

    def _fullest_first(self, workers: Iterable[WorkerId]) -> list[WorkerId]:
        return sorted(workers, key=lambda worker: (-self.counts[worker], worker))

    def _quotas(self) -> dict[WorkerId, int]:
        base, extra = divmod(sum(self.counts.values()), len(self.counts))
        fullest = self._fullest_first(self.counts)
        return {worker: base + (place < extra) for place, worker in enumerate(fullest)}

    def _take(
        self, worker: WorkerId, excess: int, topics: list[tuple[int, TopicKey]]
    ) -> Iterator[Partition]:
        if excess > 0:
            heapify(topics)
        while excess > 0 and topics:
            count, key = heappop(topics)
            yield self._movable[key][worker].pop()
            self._sizes[key] -= 1
            self.counts[worker] -= 1
            excess -= 1
            if count < -1:
                heappush(topics, (count + 1, key))


def even_out(board: Board) -> dict[Partition, Move]:
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
