"""Settings of a route that syncs consumer groups, for fleets on shared clusters."""

from __future__ import annotations

from typing import Any

INTERVAL_S = 0.5


def syncing_route(delivery: str, *, groups: str, **policy: Any) -> dict[str, Any]:
    """A route with an offset map. `groups`: pattern of the names that are synced; `policy`: other
    settings of it."""
    return {
        "delivery": delivery,
        "offset_map": True,
        "sync_group_offsets": {
            "enabled": True,
            "interval_s": INTERVAL_S,
            "groups": {"include": [groups]},
            **policy,
        },
    }
