"""Positions published at the source, trailing, for the usual lag tools. The product never reads them.

They go to an ordinary group, at most every few seconds and one publication at a time. The last positions
before a partition falls quiet must be published, too: otherwise tools would show a constant lag.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from ureplicator_common.kafka import Position
from ureplicator_common.model import Partition
from ureplicator_worker.copier.lifecycle import IN_LANE, OwnedPartition
from ureplicator_worker.copier.loop.mailbox import Mailbox
from ureplicator_worker.copier.raw.net.metadata import ClusterMetadata

PUBLISH_EVERY_S = 5.0

logger = logging.getLogger(__name__)


class SourceOffsetPublisher:
    """`failures`: reasons of publications that failed, posted by the thread of the metadata."""

    def __init__(self, metadata: ClusterMetadata, *, group: str, failures: Mailbox[str]) -> None:
        self._metadata = metadata
        self._group = group
        self._failures = failures
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
        self._due = False
        positions = {
            (each.partition.topic, each.partition.number): Position(committed(each.partition), -1)
            for each in owned
            if each.state in IN_LANE and each.grant and each.grant.settings.publish_to_source
        }
        if positions:
            self._due = not self._metadata.publish(
                self._group, positions, failed=self._failures.post
            )

    def _failed(self, reason: str) -> None:
        """Retried; logged once, since nothing depends on it."""
        self._due = True
        if not self._warned:
            self._warned = True
            logger.warning("%s: positions are not published at the source: %s", self._group, reason)
