"""Topic of a route's heartbeats: its name and configuration. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ureplicator_common.model import Route

CONFIGS: Mapping[str, str] = {
    "cleanup.policy": "delete",
    "retention.ms": "600000",
    "segment.ms": "600000",
}
"""One heartbeat each second takes some 100 bytes: about 100 KB stay."""

_HEARTBEATS = re.compile(r".*ureplicator-.+\..+-heartbeats")


def heartbeat_topic(*, fleet: str, route: Route) -> str:
    return f"ureplicator-{fleet}-{route}-heartbeats"


def is_heartbeat_topic(topic: str) -> bool:
    """True for the heartbeats of any route, also under a prefix: no pattern of a route matches them."""
    return _HEARTBEATS.fullmatch(topic) is not None
