"""Events of the fleet as REST shows them."""

from __future__ import annotations

from datetime import UTC, datetime

from ureplicator_common.model import EventKind
from ureplicator_common.znode_contents import PastEvent
from ureplicator_controller.core.reporting.authorship import by_of, id_of


def shown_time(wall_ms: int) -> str:
    """ISO 8601, in UTC."""
    return datetime.fromtimestamp(wall_ms / 1_000, UTC).isoformat(timespec="milliseconds")


def shown_event(past: PastEvent) -> dict[str, object]:
    """The event as JSON."""
    moved = past.partition
    shown = {
        "number": past.number,
        "time": shown_time(past.wall_ms),
        "kind": past.kind,
        "event": past.id,
        "reason": past.reason,
        "request": id_of(past.request),
        "by": by_of(past.request),
    }
    if moved is None:
        return {**shown, "worker": past.worker}
    shown |= {
        "route": str(moved.route),
        "topic": moved.topic,
        "partition": moved.number,
        "ownerEpoch": past.owner_epoch,
    }
    if past.kind in (EventKind.GAP, EventKind.CUTOVER):
        offsets = {"firstOffset": past.first_offset, "nextOffset": past.next_offset}
        return {**shown, "worker": past.worker, **offsets}
    return {**shown, "from": past.source, "to": past.target, "tookMs": past.took_ms}
