"""Positions at the source, trailing, for the usual lag tools. Nothing reads them back by itself.

They go to an ordinary group, at most every few seconds and one publication at a time. The last ones
before a partition falls quiet must get there, too: else tools would show a lag that is none, for ever.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from ureplicator_common.kafka import Position
from ureplicator_worker.copier.raw.net.metadata import ClusterMetadata
from ureplicator_worker.copier.raw.partition import PartitionCopy

PUBLISH_EVERY_S = 5.0

logger = logging.getLogger(__name__)


class Publisher:
    def __init__(self, metadata: ClusterMetadata, *, group: str) -> None:
        self._metadata = metadata
        self._group = group
        self._due = False
        self._at_s = 0.0
        self._warned = False

    def changed(self) -> None:
        """Positions were committed that are not published yet."""
        self._due = True

    def work(self, copies: Iterable[PartitionCopy], now_s: float) -> None:
        if not self._due or now_s < self._at_s:
            return
        self._at_s = now_s + PUBLISH_EVERY_S
        self._due = False
        positions = {
            copy.source: Position(copy.committed, -1)
            for copy in copies
            if copy.committed >= 0 and copy.grant.settings.publish_to_source
        }
        if positions:
            self._due = not self._metadata.publish(self._group, positions)

    def failed(self, reason: str) -> None:
        """Tried again; said once, since nothing depends on it."""
        self._due = True
        if not self._warned:
            self._warned = True
            logger.warning("%s: positions are not published at the source: %s", self._group, reason)
