"""Topic of a fleet on its targets for trials (`sequence_probe`): its name and configuration."""

from __future__ import annotations

import re
from collections.abc import Mapping

PARTITIONS = 1
CONFIGS: Mapping[str, str] = {"cleanup.policy": "delete", "retention.ms": "3600000"}
_PROBES = re.compile(r"ureplicator-.+-probe")


def probe_topic(fleet: str) -> str:
    return f"ureplicator-{fleet}-probe"


def is_probe_topic(topic: str) -> bool:
    """True for that of any fleet: trials are not copied."""
    return _PROBES.fullmatch(topic) is not None
