"""Counters of handlers, for each source topic, since the copier began. They only grow.

Counted when a result of the handler's process arrives: records that are handled again (after an abort, or
when their process was lost) count again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from ureplicator_common.model import Route
from ureplicator_worker.lifeline.messages import HandlerReport


@dataclass(slots=True)
class TopicCounters:
    """Counters of a topic, as of `HandlerReport`."""

    records: int = 0
    outputs: int = 0
    dropped: int = 0
    dead_letters: int = 0
    errors: int = 0
    chunks: int = 0
    busy_ms: float = 0.0
    starts: int = 0


class HandlerCounters:
    def __init__(self) -> None:
        self._topics: defaultdict[str, TopicCounters] = defaultdict(TopicCounters)

    def handled(
        self, topic: str, *, records: int, outputs: int, dropped: int, dead_letters: int
    ) -> None:
        """A part of a chunk. Dead letters are outputs, and errors."""
        counters = self._topics[topic]
        counters.records += records
        counters.outputs += outputs
        counters.dropped += dropped
        counters.dead_letters += dead_letters
        counters.errors += dead_letters

    def done(self, topic: str, *, busy_ms: float) -> None:
        """A chunk, all of it."""
        self._topics[topic].chunks += 1
        self._topics[topic].busy_ms += busy_ms

    def failed(self, topic: str) -> None:
        """A partition of it has stopped."""
        self._topics[topic].errors += 1

    def started(self, topics: Iterable[str]) -> None:
        """A process for these."""
        for topic in topics:
            self._topics[topic].starts += 1

    def reports(self, route: Route) -> dict[str, HandlerReport]:
        return {
            f"{route}/{topic}": HandlerReport(
                records=counters.records,
                outputs=counters.outputs,
                dropped=counters.dropped,
                dead_letters=counters.dead_letters,
                errors=counters.errors,
                chunks=counters.chunks,
                busy_ms=round(counters.busy_ms),
                starts=counters.starts,
            )
            for topic, counters in self._topics.items()
        }
