"""Selection of whitelisted topics by route, state and name, for lists of many topics. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection
from fnmatch import translate

from ureplicator_common.model import Route
from ureplicator_controller.core.state.exclusions import effective_state
from ureplicator_controller.core.state.snapshot import Snapshot


def selected_topics(
    snapshot: Snapshot,
    routes: Collection[Route],
    *,
    state: str | None = None,
    match: str | None = None,
    after: str | None = None,
) -> list[str]:
    """Names of topics on `routes` in order, each once; None: no such filter.

    `state`: the state that takes effect, on one of the routes at least. `match`: a pattern with `*`, `?`
    and `[...]` for the whole name. `after`: only names behind this one.
    """
    pattern = re.compile(translate(match)) if match is not None else None
    return sorted(
        {
            key.topic
            for key in snapshot.topics
            if key.route in routes
            and (after is None or key.topic > after)
            and (pattern is None or pattern.match(key.topic))
            and state in (None, effective_state(snapshot, key))
        }
    )
