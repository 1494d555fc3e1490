"""Measures that a copier takes of itself, for the metrics of its worker. Counters begin with its run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ureplicator_common.model import Route


class TransactionCounts(NamedTuple):
    """Transactions of one route: committed, in `commit_ms` from their seals on, and aborted."""

    committed: int = 0
    aborted: int = 0
    commit_ms: int = 0


@dataclass(frozen=True, slots=True)
class Measures:
    """`fetch_to_ack_ms`: batches per bucket of LATENCY_BOUNDS_MS, from the first bytes of the response that
    brought one to its acknowledgement. `cpu_ms`, `memory_bytes`: of the copier and what it started."""

    fetch_to_ack_ms: tuple[int, ...] = ()
    fetch_to_ack_sum_ms: int = 0
    cpu_ms: int = 0
    memory_bytes: int = 0
    transactions: Mapping[Route, TransactionCounts] = field(default_factory=dict)


class Segment(NamedTuple):
    """Source offsets from `first` to before `end` lie at the target from offset `target` on; `repeated`: they
    may lie at smaller offsets, too."""

    first: int
    end: int
    target: int
    repeated: bool = False
