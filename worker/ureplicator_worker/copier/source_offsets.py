"""Positions published at the source, trailing, for the usual lag tools. The product never reads them.

They go to an ordinary group, at most every few seconds and one publication at a time: those that changed,
and those that would expire. The last positions before a partition falls quiet must be published, too:
otherwise tools would show a constant lag.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping

from ureplicator_common.kafka import Position
from ureplicator_common.model import Partition
from ureplicator_worker.copier.at_least_once import RENEW_S
from ureplicator_worker.copier.lifecycle import IN_LANE, OwnedPartition
from ureplicator_worker.copier.loop.mailbox import Mailbox
from ureplicator_worker.copier.net.metadata import ClusterMetadata

PUBLISH_EVERY_S = 5.0

TopicPartition = tuple[str, int]

logger = logging.getLogger(__name__)


class SourceOffsetPublisher:
    """`failures`: reasons of publications that failed, posted by the thread of the metadata."""

    def __init__(self, metadata: ClusterMetadata, *, group: str, failures: Mailbox[str]) -> None:
        self._metadata = metadata
        self._group = group
        self._failures = failures
        self._published: dict[TopicPartition, tuple[int, float]] = {}
        self._last: Mapping[TopicPartition, Position] = {}
        self._due = False
        self._at_s = 0.0
        self._warned = False

    def changed(self) -> None:
        """Positions were committed that are not published yet."""
        self._due = True

    def work(
        self, owned: Iterable[OwnedPartition], committed: Callable[[Partition], int], now_s: float
    ) -> None:
        for reason in self._failures.take():
            self._failed(reason)
        if not self._due or now_s < self._at_s:
            return
        self._at_s = now_s + PUBLISH_EVERY_S
        positions = self._changed(owned, committed, now_s)
        self._due = False
        if not positions:
            return
        if self._metadata.publish(self._group, positions, failed=self._failures.post):
            self._last = positions
            self._published |= {
                key: (position.offset, now_s) for key, position in positions.items()
            }
        else:
            self._due = True

    def _changed(
        self, owned: Iterable[OwnedPartition], committed: Callable[[Partition], int], now_s: float
    ) -> dict[TopicPartition, Position]:
        """Positions to publish now. Partitions that were released since are forgotten."""
        present = {
            (held.partition.topic, held.partition.number): committed(held.partition)
            for held in owned
            if held.state in IN_LANE and held.grant and held.grant.settings.publish_to_source
        }
        self._published = {key: at for key, at in self._published.items() if key in present}
        nothing = (-1, -RENEW_S)
        changed: dict[TopicPartition, Position] = {}
        for key, offset in present.items():
            last, at_s = self._published.get(key, nothing)
            if offset >= 0 and (offset != last or now_s - at_s >= RENEW_S):
                changed[key] = Position(offset, -1)
        return changed

    def _failed(self, reason: str) -> None:
        """Retried; logged once, since nothing depends on it."""
        self._due = True
        for key in self._last:
            self._published.pop(key, None)
        if not self._warned:
            self._warned = True
            logger.warning("%s: positions are not published at the source: %s", self._group, reason)
