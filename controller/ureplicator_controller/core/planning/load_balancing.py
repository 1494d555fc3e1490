"""Even bytes per second, by few exchanges, each of which clearly helps, and then rest.

Counts stay as even as they are: a partition moves alone only from a worker that has more to one
that has fewer, else two workers exchange one each. So the two goals never undo each other's work.

Hysteresis: nothing happens until a worker carries more than `ratio` times the average, and then it
is relieved down to the middle between the two. A step is taken only if the heavier of its two
workers is lighter afterwards by a `MIN_GAIN` of what a partition carries on average. Each step therefore
makes the sum of the squared loads smaller by at least twice the square of that gain: under the same
loads there is an end to it, and after the end no move for ever.

Only workers all of whose partitions have settled rates are judged (`core.loads`). Who took part in
a step has an unsettled partition then, and rests until that has settled.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ureplicator_common.model import Partition, WorkerId
from ureplicator_controller.core.planning.placement import Move
from ureplicator_controller.core.state.loads import NEGLIGIBLE_BYTES_PER_S, Rates
from ureplicator_controller.core.state.snapshot import BalanceLimits

MIN_GAIN = 0.1
"""Of the average partition, not of the average load: where workers have hundreds of partitions, it
takes many small steps to relieve one of them, and the budget is what makes them slow."""
MAX_TARGETS = 8
"""With so many of the lightest workers an exchange is looked for: the first is nearly always good."""

Rated = tuple[float, Partition]


@dataclass(frozen=True, slots=True)
class _Exchange:
    """`given` leaves the heavy worker, `taken` (if any) comes in exchange."""

    source: WorkerId
    target: WorkerId
    given: Rated
    taken: Rated | None

    @property
    def change(self) -> float:
        return self.given[0] - (self.taken[0] if self.taken else 0.0)


def balance_loads(
    owned: Mapping[WorkerId, Sequence[Partition]],
    counts: Mapping[WorkerId, int],
    rates: Rates,
    limits: BalanceLimits,
) -> dict[Partition, Move]:
    """Moves that relieve the heaviest workers. `counts` are all that a worker owns, also what must
    not be moved."""
    judged = {
        worker: [(rates.get(worker, {})[partition], partition) for partition in partitions]
        for worker, partitions in owned.items()
        if counts[worker] == len(partitions) and rates.get(worker, {}).keys() >= set(partitions)
    }
    scales = _LoadBalancer(judged, {worker: counts[worker] for worker in judged}, limits)
    return dict(scales.moves()) if judged else {}


class _LoadBalancer:
    """The judged workers with their partitions by rate. Lives for one plan."""

    def __init__(
        self,
        judged: Mapping[WorkerId, Sequence[Rated]],
        counts: Mapping[WorkerId, int],
        limits: BalanceLimits,
    ) -> None:
        self._rated = {worker: sorted(rated) for worker, rated in judged.items()}
        self._counts = dict(counts)
        self._loads = {worker: sum(rate for rate, _ in rated) for worker, rated in judged.items()}
        self._average = sum(self._loads.values()) / max(1, len(self._loads))
        self._bound = max(self._average * limits.ratio, self._average + NEGLIGIBLE_BYTES_PER_S)
        self._aim = (self._average + self._bound) / 2
        partitions = sum(len(rated) for rated in judged.values())
        self._gain = MIN_GAIN * sum(self._loads.values()) / max(1, partitions)
        self._budget = limits.moves

    def moves(self) -> Iterator[tuple[Partition, Move]]:
        """A step at a time from the heaviest worker that can be helped. None is moved twice."""
        heavy = [worker for worker, load in self._loads.items() if load > self._bound]
        reasons = {worker: self._reason(worker) for worker in heavy}
        while heavy:
            source = max(heavy, key=lambda worker: (self._loads[worker], worker))
            step = self._best_step(source)
            if step is not None:
                yield from self._take(step, reasons[source])
            if step is None or self._loads[source] <= self._aim:
                heavy.remove(source)

    def _reason(self, worker: WorkerId) -> str:
        return f"load: {worker} had {self._loads[worker] / self._average:.1f} times the average"

    def _take(self, step: _Exchange, reason: str) -> Iterator[tuple[Partition, Move]]:
        self._loads[step.source] -= step.change
        self._loads[step.target] += step.change
        self._rated[step.source].remove(step.given)
        self._budget -= 1
        yield step.given[1], Move(step.target, reason)
        if step.taken is None:
            self._counts[step.source] -= 1
            self._counts[step.target] += 1
        else:
            self._rated[step.target].remove(step.taken)
            self._budget -= 1
            yield step.taken[1], Move(step.source, f"{reason}; in exchange")

    def _best_step(self, source: WorkerId) -> _Exchange | None:
        lightest = sorted(self._loads, key=lambda worker: (self._loads[worker], worker))
        for target in lightest[:MAX_TARGETS]:
            if target == source or self._loads[target] >= self._average:
                return None
            steps = list(self._steps(source, target))
            if steps:
                wanted = self._wanted(source, target)
                return min(steps, key=lambda step: abs(step.change - wanted))
        return None

    def _wanted(self, source: WorkerId, target: WorkerId) -> float:
        """What would bring one of the two to the average and neither beyond it."""
        average = self._average
        return min(self._loads[source] - average, average - self._loads[target])

    def _steps(self, source: WorkerId, target: WorkerId) -> Iterator[_Exchange]:
        """Those that help, one or two for each partition of the heavy worker."""
        wanted, others = self._wanted(source, target), self._rated[target]
        for given in self._rated[source] if self._budget else ():
            if self._counts[source] > self._counts[target]:
                step = _Exchange(source, target, given, None)
                if self._helps(step):
                    yield step
            near = bisect_left(others, given[0] - wanted, key=lambda rated: rated[0])
            for taken in others[max(0, near - 1) : near + 1] if self._budget > 1 else ():
                step = _Exchange(source, target, given, taken)
                if self._helps(step):
                    yield step

    def _helps(self, step: _Exchange) -> bool:
        heavy, light = self._loads[step.source], self._loads[step.target]
        return max(heavy - step.change, light + step.change) <= heavy - self._gain
