"""Bounds of a reading: an end of the log, a time, or offsets that the user names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ureplicator_common.errors import ConfigurationError

TopicPartition = tuple[str, int]
Offsets = dict[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Bound:
    """`time_ms`: of all partitions, also EARLIEST or LATEST. Else `offsets`, which may hold the two as
    well, or `times_ms`, of each partition."""

    time_ms: int | None
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    times_ms: Mapping[TopicPartition, int] = field(default_factory=dict)

    def lookups(self, partitions: Iterable[TopicPartition]) -> tuple[Offsets, Offsets]:
        """(offsets that are known, times to look up in the logs). Raises ConfigurationError."""
        wanted = sorted(partitions)
        if self.time_ms is not None:
            return {}, dict.fromkeys(wanted, self.time_ms)
        named = {**self.offsets, **self.times_ms}
        if set(wanted) != named.keys():
            differ = sorted(named.keys() ^ set(wanted))
            names = ", ".join(f"{topic}/{number}" for topic, number in differ)
            raise ConfigurationError(
                f"offsets must name all partitions that are read, and no others; these differ: {names}"
            )
        known = {key: offset for key, offset in self.offsets.items() if offset >= 0}
        return known, {key: time for key, time in named.items() if key not in known}
