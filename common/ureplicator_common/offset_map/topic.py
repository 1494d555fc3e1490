"""Topic of an offset map: its name and configuration."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ureplicator_common.model import Route

PARTITIONS = 1
"""Each transaction that changes the map writes a marker into each of its partitions."""
CONFIGS: Mapping[str, str] = {
    "cleanup.policy": "compact",
    "compression.type": "producer",
    "max.message.bytes": "1048588",
    "segment.ms": "86400000",
}
"""Batches stay as they are written, without compression. Compaction passes over the newest log segment, so a
quiet topic gets a new one each day."""

_MAPS = re.compile(r"ureplicator-.+-offset-map")


def map_topic(*, fleet: str, route: Route) -> str:
    return f"ureplicator-{fleet}-{route}-offset-map"


def is_map_topic(topic: str) -> bool:
    """True for the map of any route: maps are not copied."""
    return _MAPS.fullmatch(topic) is not None
