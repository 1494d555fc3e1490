"""Two contenders copy the same topic in turn, and are compared pair by pair.

A pair is two copies one after the other, every second pair in the other order: what slows the machine for a
while slows both, and what the first copy leaves behind changes sides. The ratio is the geometric mean of
those of all pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import geometric_mean
from typing import TypeVar

from ureplicator_bench.throughput import Throughput, combined

T = TypeVar("T")

FIGURES: Sequence[tuple[str, Callable[[Throughput], float]]] = (
    ("records/s", lambda copy: copy.records_per_s),
    ("CPU-s/GB", lambda copy: copy.cpu_s_per_gb),
    ("brokers, CPU-s/GB", lambda copy: copy.brokers_cpu_s_per_gb),
    ("both, CPU-s/GB", lambda copy: copy.cpu_s_per_gb + copy.brokers_cpu_s_per_gb),
)

Pair = tuple[Throughput, Throughput]


@dataclass(frozen=True, slots=True)
class Compared:
    """One figure of both, over all copies, and how many times that of the first the second has in each
    pair."""

    what: str
    first: float
    second: float
    ratios: Sequence[float]

    @property
    def ratio(self) -> float:
        return geometric_mean(self.ratios)


def in_turn(copy: Callable[[T], Throughput], both: tuple[T, T], count: int) -> Iterator[Pair]:
    """So many pairs of copies by both."""
    first, second = both
    for number in range(count):
        if number % 2 == 0:
            yield copy(first), copy(second)
        else:
            later = copy(second)
            yield copy(first), later


def compared(pairs: Sequence[Pair]) -> Iterator[Compared]:
    first, second = map(combined, zip(*pairs, strict=True))
    for what, figure in FIGURES:
        ratios = [figure(other) / figure(one) for one, other in pairs]
        yield Compared(what, figure(first), figure(second), ratios)
