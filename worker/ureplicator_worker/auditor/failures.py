"""Audits that failed, and when each is tried again: growing delays, so that what fails does not hold up the
others. Pure.

    fails       1    2    3 ...
    delay_s    60  120  300

The last delay is a trade: after an outage of a cluster all topics wait for so long at most, and one that
takes a minute to fail each time holds up the others for a sixth of the time.

It is kept in memory: another auditor, or this one after a restart, tries at once. `keep` bounds it by what
exists.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from ureplicator_common.backoff import Backoff

DELAYS_S = (60.0, 120.0, 300.0)

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Failure:
    """`retry_s`: monotonic time from which on it is tried again."""

    reason: str
    backoff: Backoff
    retry_s: float


class Failures(Generic[K]):
    """`total`: since the start of this process. Changed by one thread; others may read."""

    def __init__(self) -> None:
        self._failing: dict[K, Failure] = {}
        self.total = 0

    @property
    def failing(self) -> Mapping[K, Failure]:
        return dict(self._failing)

    def add(self, key: K, reason: str, *, now_s: float) -> None:
        before = self._failing.get(key)
        backoff = (before.backoff if before else Backoff(DELAYS_S)).failed()
        self._failing[key] = Failure(reason, backoff, now_s + backoff.delay_s)
        self.total += 1

    def remove(self, key: K) -> None:
        """Forget the failures of what succeeded: its next failure is a first one."""
        self._failing.pop(key, None)

    def keep(self, keys: Collection[K]) -> None:
        """Forget what is not among these."""
        for key in self._failing.keys() - keys:
            del self._failing[key]

    def due(self, key: K, *, now_s: float) -> bool:
        failure = self._failing.get(key)
        return failure is None or now_s >= failure.retry_s
