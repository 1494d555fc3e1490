"""Topics whose positions are to be forgotten, as soon as nobody can write them any more. Pure.

A topic that is deleted for good stays `deleting` until its positions are gone (`engines.forgetting`);
only then the plan retires it. Until then nobody can whitelist it again, so what is forgotten is what the
operator meant.
"""

from __future__ import annotations

from dataclasses import dataclass

from ureplicator_common.model import TopicIntent, TopicKey, TopicState
from ureplicator_controller.core.planning.ownership import Fences, Holdings
from ureplicator_controller.core.planning.partitions import Case, Cases, cases
from ureplicator_controller.core.state.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Forgettable:
    """`fence`: transactional ids under which somebody, frozen perhaps, could still commit."""

    target_topic: str
    partitions: int
    fence: tuple[str, ...]


def forgettable(snapshot: Snapshot) -> dict[TopicKey, Forgettable]:
    """Marked topics that no worker is told to hold, or says it holds."""
    marked = {
        key: stored.value
        for key, stored in snapshot.topics.items()
        if stored.value.forget_positions and stored.value.state is TopicState.DELETING
    }
    if not marked:
        return {}
    holdings, fences, found = Holdings(snapshot), Fences(snapshot), cases(snapshot)
    judged = {
        key: _judged(snapshot, key, intent, found, holdings=holdings, fences=fences)
        for key, intent in marked.items()
    }
    return {key: what for key, what in judged.items() if what is not None}


def _judged(
    snapshot: Snapshot,
    key: TopicKey,
    intent: TopicIntent,
    found: Cases,
    *,
    holdings: Holdings,
    fences: Fences,
) -> Forgettable | None:
    topic = found[key].values()
    settings = snapshot.routes.get(key.route)
    if settings is None or any(_is_held(case, holdings) for case in topic):
        return None
    able = {worker for case in topic for worker in holdings.remaining(case)}
    fence = fences.of(key.route, sorted(able))
    if fence is None:
        return None
    target = intent.target_topic or settings.value.target_topic(key.topic)
    return Forgettable(target, intent.partitions, fence)


def _is_held(case: Case, holdings: Holdings) -> bool:
    holders = case.before.holders if case.before else {}
    return bool(case.unclear or case.told or holdings.held_by(case, holders))
