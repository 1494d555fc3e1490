"""Partitions and offsets of the topics that are read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ureplicator_common.errors import ConfigurationError
from ureplicator_common.kafka.client import EARLIEST, LATEST, ClusterClient
from ureplicator_worker.kafka_batches.bounds import Bound, Offsets, TopicPartition
from ureplicator_worker.kafka_batches.options import Options
from ureplicator_worker.records.offsets import offsets_of


class Logs:
    """Belongs to one thread. Every call may raise ClusterUnavailable and RangeUnavailable."""

    def __init__(self, client: ClusterClient, options: Options) -> None:
        self._client = client
        self._options = options

    def partitions(self) -> frozenset[TopicPartition]:
        """Partitions to read that exist."""
        view = self._client.view(sorted(self._options.topics))
        assigned = self._options.assigned
        return frozenset(key for key in view.leaders if not assigned or key in assigned)

    def all_partitions(self) -> frozenset[TopicPartition]:
        """Partitions to read. Raises ConfigurationError if one does not exist."""
        found = self.partitions()
        topics = {topic for topic, _ in found}
        missing = [topic for topic in self._options.topics if topic not in topics]
        missing += [f"{topic}/{n}" for topic, n in sorted(set(self._options.assigned) - found)]
        if missing:
            raise ConfigurationError(f"these topics do not exist: {', '.join(missing)}")
        return found

    def at(self, bound: Bound, partitions: Iterable[TopicPartition]) -> Offsets:
        """Raises ConfigurationError if the bound names other partitions than these."""
        known, times_ms = bound.lookups(partitions)
        return known | self.at_times(times_ms)

    def at_times(self, times_ms: Mapping[TopicPartition, int]) -> Offsets:
        return offsets_of(self._client, times_ms, timeout_s=self._options.timeout_s)

    def first(self, partitions: Iterable[TopicPartition]) -> Offsets:
        return self.at_times(dict.fromkeys(sorted(partitions), EARLIEST))

    def last(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """Ends of what is committed."""
        return self.at_times(dict.fromkeys(sorted(partitions), LATEST))

    def close(self) -> None:
        self._client.close()
