"""Even bytes per second, by few exchanges, each of which clearly helps.

Counts stay as even as they are: a partition moves alone only from a worker that has more above its share
to one that has less; otherwise two workers exchange one each, of the same pool. So the two goals never undo
each other's work.

Loads are compared for each slot: a worker with twice the slots is to copy twice as much (`widths`).

Hysteresis: nothing happens until a worker carries more than `ratio` times the average. Then it is
relieved down to the middle between the two. An exchange is made only if the heavier of its two workers is
lighter afterwards by `MIN_GAIN` of an average partition's load. So each exchange reduces the sum of the
squared loads, each times its width, by at least the square of that gain: under constant loads the exchanges
come to an end, and no move follows.

Only workers all of whose partitions have settled rates are balanced (`state.loads`). After an exchange
both workers have an unsettled partition, and are left out until its rate has settled.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from ureplicator_common.model import Partition, WorkerId
from ureplicator_controller.core.balance.load_estimate import widths
from ureplicator_controller.core.balance.placement import Move
from ureplicator_controller.core.state.loads import NEGLIGIBLE_BYTES_PER_S, Rates
from ureplicator_controller.core.state.snapshot import BalanceLimits

MIN_GAIN = 0.1
"""Fraction of an average partition's load, not of a worker's: where workers have hundreds of
partitions, it takes many small exchanges to relieve one. The budget bounds how many happen at once."""
MAX_TARGETS = 8
"""Number of lightest workers that are tried for an exchange; the first one nearly always fits."""

Rated = tuple[float, Partition]


@dataclass(frozen=True, slots=True)
class _Exchange:
    """Exchange between two workers: `given` leaves the heavy one, `taken` (if any) comes back."""

    source: WorkerId
    target: WorkerId
    given: Rated
    taken: Rated | None

    @property
    def change(self) -> float:
        """Load that leaves the heavy worker."""
        return self.given[0] - (self.taken[0] if self.taken else 0.0)


@dataclass(frozen=True, slots=True)
class BalancedFleet:
    """Workers with what they have.

    `owned`: movable partitions. `counts`: number of partitions, with those that must not be moved. `spare`:
    partitions above the whole part of a worker's share, of `counts`. `slots`: of each worker. `pool`: number
    of a partition's pool.
    """

    owned: Mapping[WorkerId, Sequence[Partition]]
    counts: Mapping[WorkerId, int]
    spare: Mapping[WorkerId, int]
    slots: Mapping[WorkerId, int]
    pool: Callable[[Partition], int]
    pools: Sequence[Set[WorkerId]]
    """Eligible workers of each pool."""
    failing: Set[Partition] = frozenset()
    """Partitions that fail at each try: they load nothing, and stay where they are."""


def balance_loads(
    fleet: BalancedFleet, rates: Rates, limits: BalanceLimits
) -> dict[Partition, Move]:
    """Choose moves that relieve the heaviest workers."""
    balanced = {
        worker: [(rates.get(worker, {})[partition], partition) for partition in partitions]
        for worker, partitions in fleet.owned.items()
        if fleet.counts[worker] == len(partitions)
        and rates.get(worker, {}).keys() >= set(partitions)
    }
    return dict(_LoadBalancer(balanced, fleet, limits).moves()) if balanced else {}


class _LoadBalancer:
    """Balanced workers, with their partitions sorted by rate. Lives for one plan. Loads are those of a worker
    divided by its width."""

    def __init__(
        self,
        balanced: Mapping[WorkerId, Sequence[Rated]],
        fleet: BalancedFleet,
        limits: BalanceLimits,
    ) -> None:
        self._fleet = fleet
        self._rated = {
            worker: sorted(pair for pair in rated if pair[1] not in fleet.failing)
            for worker, rated in balanced.items()
        }
        self._spare = {worker: fleet.spare[worker] for worker in balanced}
        self._widths = widths({worker: fleet.slots[worker] for worker in balanced})
        totals = {worker: sum(rate for rate, _ in rated) for worker, rated in balanced.items()}
        self._loads = {worker: load / self._widths[worker] for worker, load in totals.items()}
        self._average = sum(totals.values()) / max(1, len(totals))
        self._start_above = max(
            self._average * limits.ratio, self._average + NEGLIGIBLE_BYTES_PER_S
        )
        self._relieve_to = (self._average + self._start_above) / 2
        partitions = sum(len(rated) for rated in balanced.values())
        self._gain = MIN_GAIN * sum(totals.values()) / max(1, partitions)
        self._budget = limits.moves

    def moves(self) -> Iterator[tuple[Partition, Move]]:
        """Exchange by exchange, from the heaviest worker that can be relieved. None is moved twice."""
        heavy = [worker for worker, load in self._loads.items() if load > self._start_above]
        reasons = {worker: self._reason(worker) for worker in heavy}
        while heavy:
            source = max(heavy, key=lambda worker: (self._loads[worker], worker))
            exchange = self._best_exchange(source)
            if exchange is not None:
                yield from self._apply(exchange, reasons[source])
            if exchange is None or self._loads[source] <= self._relieve_to:
                heavy.remove(source)

    def _reason(self, worker: WorkerId) -> str:
        return f"load: {worker} had {self._loads[worker] / self._average:.1f} times the average"

    def _apply(self, exchange: _Exchange, reason: str) -> Iterator[tuple[Partition, Move]]:
        """Account for an exchange and yield its moves."""
        self._loads[exchange.source], self._loads[exchange.target] = self._after(exchange)
        self._rated[exchange.source].remove(exchange.given)
        self._budget -= 1
        yield exchange.given[1], Move(exchange.target, reason)
        if exchange.taken is None:
            self._spare[exchange.source] -= 1
            self._spare[exchange.target] += 1
        else:
            self._rated[exchange.target].remove(exchange.taken)
            self._budget -= 1
            yield exchange.taken[1], Move(exchange.source, f"{reason}; in exchange")

    def _best_exchange(self, source: WorkerId) -> _Exchange | None:
        """Exchange that brings the source nearest to its ideal change, with the lightest target."""
        lightest = sorted(self._loads, key=lambda worker: (self._loads[worker], worker))
        for target in lightest[:MAX_TARGETS]:
            if target == source or self._loads[target] >= self._average:
                return None
            exchanges = list(self._exchanges(source, target))
            if exchanges:
                ideal = self._ideal_change(source, target)
                return min(exchanges, key=lambda exchange: abs(exchange.change - ideal))
        return None

    def _ideal_change(self, source: WorkerId, target: WorkerId) -> float:
        """Change that brings one of the two to the average and neither beyond it."""
        average, width = self._average, self._widths
        return min(
            (self._loads[source] - average) * width[source],
            (average - self._loads[target]) * width[target],
        )

    def _exchanges(self, source: WorkerId, target: WorkerId) -> Iterator[_Exchange]:
        """Helpful exchanges: one or two for each partition of the heavy worker."""
        ideal, others = self._ideal_change(source, target), self._rated[target]
        for given in self._rated[source] if self._budget else ():
            pool = self._fleet.pool(given[1])
            if target not in self._fleet.pools[pool]:
                continue
            if self._spare[source] > self._spare[target]:
                exchange = _Exchange(source, target, given, None)
                if self._helps(exchange):
                    yield exchange
            near = bisect_left(others, given[0] - ideal, key=lambda rated: rated[0])
            for taken in others[max(0, near - 1) : near + 1] if self._budget > 1 else ():
                exchange = _Exchange(source, target, given, taken)
                if self._fleet.pool(taken[1]) == pool and self._helps(exchange):
                    yield exchange

    def _after(self, exchange: _Exchange) -> tuple[float, float]:
        """Loads of the two workers after an exchange."""
        return (
            self._loads[exchange.source] - exchange.change / self._widths[exchange.source],
            self._loads[exchange.target] + exchange.change / self._widths[exchange.target],
        )

    def _helps(self, exchange: _Exchange) -> bool:
        """True if the heavier of the two workers is lighter afterwards by the minimum gain."""
        return max(self._after(exchange)) <= self._loads[exchange.source] - self._gain
