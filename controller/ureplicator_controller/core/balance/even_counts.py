"""Even counts: as few moves as bring every worker to its quota in each of its pools.

A worker above its quota gives partitions away, as far as others have room below theirs: of the topics that it
has most of, or where loads matter those that leave it with a load near its share.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from heapq import heapify, heappop, heappush

from ureplicator_common.model import Partition, TopicKey, WorkerId
from ureplicator_controller.core.balance.placement import Move, Placement
from ureplicator_controller.core.balance.pools import Pool
from ureplicator_controller.core.balance.quotas import Vessel, quotas, whole_shares


class EvenCounts:
    """The quotas of one placement, and the moves towards them."""

    def __init__(self, placement: Placement) -> None:
        self._placement = placement

    def has_moves(self) -> bool:
        """True if an eligible worker is above its quota in a pool, and another one has room."""
        return any(
            self._room(number, quota) and self._excess(number, quota)
            for number, quota in enumerate(self._quotas())
        )

    def moves(self) -> Iterator[tuple[Partition, WorkerId]]:
        """Move partitions above the quotas of each pool, the fullest workers first, as far as others have
        room; yield their new owners."""
        for number, quota in enumerate(self._quotas()):
            counts = self._placement.pool_counts[number]

            has_room = partial(_is_below, counts, quota)
            for partition in self._take_excess(number, quota):
                yield partition, self._placement.place(partition.key, partition, has_room)

    def spare(self) -> dict[WorkerId, int]:
        """Partitions of each worker above the whole part of its share. Nobody has any if there are several
        pools: in one of them a worker may have to do without."""
        if self._placement.has_several:
            return dict.fromkeys(self._placement.counts, 0)
        shares = whole_shares(sum(self._placement.counts.values()), self._vessels(0, {}))
        return {worker: count - shares[worker] for worker, count in self._placement.counts.items()}

    def _vessels(self, number: int, base: Mapping[WorkerId, int]) -> dict[WorkerId, Vessel]:
        return {
            worker: Vessel(self._placement.pools.offer(worker).slots, base.get(worker, 0), count)
            for worker, count in self._placement.pool_counts[number].items()
        }

    def _excess(self, number: int, quota: Mapping[WorkerId, int]) -> bool:
        counts, eligible = (
            self._placement.pool_counts[number],
            self._placement.pools.each[number].eligible,
        )
        return any(counts[worker] > quota[worker] for worker in eligible)

    def _room(self, number: int, quota: Mapping[WorkerId, int]) -> int:
        """Partitions that eligible workers lack."""
        counts = self._placement.pool_counts[number]
        eligible = self._placement.pools.each[number].eligible
        return sum(max(0, quota[worker] - counts[worker]) for worker in eligible)

    def _quotas(self) -> list[dict[WorkerId, int]]:
        """Quota of each worker in each pool. A later pool fills up what the earlier ones leave uneven."""
        base = Counter(self._placement.counts)
        for counts in self._placement.pool_counts:
            base.subtract(counts)
        found = []
        for number, counts in enumerate(self._placement.pool_counts):
            found.append(quotas(sum(counts.values()), self._vessels(number, base)))
            base.update(found[-1])
        return found

    def _take_excess(self, number: int, quota: Mapping[WorkerId, int]) -> list[Partition]:
        pool, counts = self._placement.pools.each[number], self._placement.pool_counts[number]
        room = self._room(number, quota)
        if not room or not self._excess(number, quota):
            return []
        topics, owned = self._topics(pool), self._placement.owned(pool)
        taken: list[Partition] = []
        for worker in sorted(pool.eligible, key=lambda worker: (-counts[worker], worker)):
            excess = min(counts[worker] - quota[worker], room - len(taken))
            if self._placement.estimate.matters:
                taken.extend(self._take_by_rate(worker, excess, owned[worker]))
            else:
                taken.extend(self._take_by_topic(worker, excess, topics[worker]))
        self._placement.unsort()
        return taken

    def _topics(self, pool: Pool) -> dict[WorkerId, list[tuple[int, TopicKey]]]:
        """Topics of each eligible worker, for a heap: most partitions first."""
        topics: dict[WorkerId, list[tuple[int, TopicKey]]] = {
            worker: [] for worker in pool.eligible
        }
        for key, topic in self._placement.movable.items():
            if self._placement.pools.of(key.route) is pool:
                for worker, partitions in topic.items():
                    if worker in topics and partitions:
                        topics[worker].append((-len(partitions), key))
        return topics

    def _take_by_topic(
        self, worker: WorkerId, excess: int, topics: list[tuple[int, TopicKey]]
    ) -> Iterator[Partition]:
        """Remove partitions of the topics with most partitions first."""
        if excess > 0:
            heapify(topics)
        while excess > 0 and topics:
            count, key = heappop(topics)
            partition = self._placement.movable[key][worker].pop()
            self._placement.take(worker, partition)
            yield partition
            excess -= 1
            if count < -1:
                heappush(topics, (count + 1, key))

    def _take_by_rate(
        self, worker: WorkerId, excess: int, owned: Sequence[Partition]
    ) -> Iterator[Partition]:
        """Remove partitions so that the load of the rest is near the average."""
        rated = sorted((self._placement.estimate.rate(partition), partition) for partition in owned)
        while excess > 0 and rated:
            wanted = self._placement.estimate.surplus(worker) / excess
            at = min(bisect_left(rated, wanted, key=lambda each: each[0]), len(rated) - 1)
            if at > 0 and wanted - rated[at - 1][0] <= rated[at][0] - wanted:
                at -= 1
            partition = rated.pop(at)[1]
            self._placement.movable[partition.key][worker].remove(partition)
            self._placement.take(worker, partition)
            yield partition
            excess -= 1


def _is_below(
    counts: Mapping[WorkerId, int], quota: Mapping[WorkerId, int], worker: WorkerId
) -> bool:
    return counts[worker] < quota[worker]


def even_counts(placement: Placement) -> dict[Partition, Move]:
    """Move as few partitions as lead to even counts."""
    joined = {worker for worker, count in placement.counts.items() if count == 0}
    moves: dict[Partition, Move] = {}
    for partition, worker in EvenCounts(placement).moves():
        kind = "joined" if worker in joined else "balance"
        moves[partition] = Move(worker, f"{kind}: share of {worker}")
    return moves
