"""Records of claims, and the claims that a log of them leaves. Pure.

    key    {"targetTopic": "orders", "fleet": "east"}
    value  {"route": "a.b", "sourceCluster": "<id>", "sourceTopic": "orders", "sinceMs": 0}
           none: the end of the claim

Of several fleets that claim a topic, the one whose record has the lowest offset holds it. A fleet writes its
record, reads to the end of the log, and withdraws if another one is before it. So of two that claim at the
same time exactly one goes on, and compaction, which keeps offsets, changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ureplicator_common.errors import PermanentError

CLAIMS_TOPIC = "ureplicator-claims"
CONFIGS: Mapping[str, str] = {"cleanup.policy": "compact", "compression.type": "producer"}
PARTITIONS = 1
"""The order of records decides, so there is one log."""


class ClaimsUnreadable(PermanentError):
    """A record of the topic is no claim: another program writes to it, or a later version of this one."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A fleet copies a source topic to this target topic. `source_cluster` is the id that its brokers give
    it; `since_ms` tells when the claim was written."""

    fleet: str
    target_topic: str
    route: str
    source_cluster: str
    source_topic: str
    since_ms: int = field(default=0, compare=False)

    def __str__(self) -> str:
        return f"fleet {self.fleet} ({self.route}/{self.source_topic})"


def encode_key(claim: Claim) -> bytes:
    return _json({"targetTopic": claim.target_topic, "fleet": claim.fleet})


def encode_value(claim: Claim) -> bytes:
    return _json(
        {
            "route": claim.route,
            "sourceCluster": claim.source_cluster,
            "sourceTopic": claim.source_topic,
            "sinceMs": claim.since_ms,
        }
    )


class Claims:
    """Claims of one cluster, record by record."""

    def __init__(self) -> None:
        self._by_topic: dict[str, dict[str, tuple[int, Claim]]] = {}

    def add(self, offset: int, key: bytes | None, value: bytes | None) -> None:
        """The next record of the log. Raises ClaimsUnreadable."""
        target_topic, fleet = _texts(offset, key, "targetTopic", "fleet")
        claims = self._by_topic.setdefault(target_topic, {})
        if value is None:
            claims.pop(fleet, None)
            return
        route, cluster, topic = _texts(offset, value, "route", "sourceCluster", "sourceTopic")
        since_ms = _object(offset, value).get("sinceMs")
        at_ms = since_ms if isinstance(since_ms, int) else 0
        claims[fleet] = offset, Claim(fleet, target_topic, route, cluster, topic, at_ms)

    def holder(self, target_topic: str, *, giver: str = "") -> Claim | None:
        """The claim that counts. `giver`: a fleet that gives the topic up, so that its claim does not."""
        claims = self._by_topic.get(target_topic, {}).values()
        counted = [entry for entry in claims if entry[1].fleet != giver]
        return min(counted, key=_offset)[1] if counted else None

    def of(self, fleet: str, target_topic: str) -> Claim | None:
        """The fleet's own claim, whether it counts or not."""
        found = self._by_topic.get(target_topic, {}).get(fleet)
        return found[1] if found else None

    def each(self) -> Iterator[tuple[Claim, bool]]:
        """All claims by target topic, and of each whether it is the one that counts."""
        for _, claims in sorted(self._by_topic.items()):
            for place, (_, claim) in enumerate(sorted(claims.values(), key=_offset)):
                yield claim, place == 0

    def all_of(self, fleet: str) -> Iterator[Claim]:
        for claims in self._by_topic.values():
            if fleet in claims:
                yield claims[fleet][1]

    def others(self, fleet: str, target_topic: str) -> list[Claim]:
        """Claims of other fleets on a target topic, by offset."""
        claims = self._by_topic.get(target_topic, {})
        return [claim for _, claim in sorted(claims.values(), key=_offset) if claim.fleet != fleet]


def _offset(stored: tuple[int, Claim]) -> int:
    return stored[0]


def _texts(offset: int, data: bytes | None, *names: str) -> list[str]:
    found = _object(offset, data)
    values = [found.get(name) for name in names]
    if not all(isinstance(value, str) and value for value in values):
        raise _unreadable(offset)
    return [str(value) for value in values]


def _object(offset: int, data: bytes | None) -> dict[str, Any]:
    try:
        found = json.loads(data or b"")
    except ValueError as error:  # UnicodeDecodeError included
        raise _unreadable(offset) from error
    if not isinstance(found, dict):
        raise _unreadable(offset)
    return found


def _unreadable(offset: int) -> ClaimsUnreadable:
    return ClaimsUnreadable(f"topic {CLAIMS_TOPIC}: the record at offset {offset} is no claim")


def _json(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
