"""Policy for topics that were deleted at the source: their target topics are kept, or deleted later. Pure.

    source topic deleted, confirmed twice     intent stopped, `source_gone_ms` set, all partitions released
    grace over, `on_source_deletion: delete`  target topic deleted by its id, then the intent retired
    same name at the source again             another topic: the mark is removed, `on_gap` decides

A record that is deleted at the target cannot be had back, so each doubt keeps the topic:

- only topics that the route has created, and only with the id that was recorded;
- only topics whose source topic had an id that was recorded: others may never have existed there;
- only while the source is the cluster that had them, by its own id: a name may lead to another one, of which
  the topics are stopped, too, but never deleted;
- not while more than half of the route's topics are gone, and more than one, nor while the source shows no
  topic at all: rather its data were lost, or it was made anew;
- not before one leader has seen the topic missing in all its looks of LOOKED_S, or of the grace if that is
  shorter. A source that does not respond begins this time anew;
- not while the fleet is frozen, or a worker holds a partition.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ureplicator_common.clock import utc_text
from ureplicator_common.model import Route, TopicKey, TopicState
from ureplicator_common.znode_contents import TopicIntent
from ureplicator_controller.core.state.snapshot import Snapshot
from ureplicator_controller.core.topics.topic_ids import TopicInfos

LOOKED_S = 600.0
"""Some hundred looks at the source, after the grace and before what cannot be undone."""
EMPTY = "the target topic is kept: the source shows no topic at all"


@dataclass(frozen=True, slots=True)
class SourceDeletion:
    """Policy of a route. `grace_s`: from the confirmed deletion at the source; None: keep target topics."""

    grace_s: float | None = None

    @property
    def looked_s(self) -> float:
        """Time for which the leader that deletes a target topic has seen the source topic missing."""
        return LOOKED_S if self.grace_s is None else min(LOOKED_S, self.grace_s)


KEEP = SourceDeletion()


@dataclass(frozen=True, slots=True)
class Outlook:
    """Future of a target topic whose source topic is gone. `delete_at_ms`: wall clock; None: it is kept, for
    this reason."""

    gone_ms: int
    delete_at_ms: int | None = None
    reason: str = ""

    def is_due(self, now_ms: int) -> bool:
        return self.delete_at_ms is not None and now_ms >= self.delete_at_ms

    @property
    def text(self) -> str:
        if self.delete_at_ms is None:
            return f"the target topic is kept: {self.reason}"
        return f"the target topic is deleted at {utc_text(self.delete_at_ms)}"


def is_source_gone(key: TopicKey, intent: TopicIntent, source: TopicInfos | None) -> bool:
    """True if the source reports a topic as unknown that it had."""
    return source is not None and key.topic not in source and bool(intent.source_topic_id)


class Outlooks:
    """Target topics of a route whose source topics are gone."""

    def __init__(self, policy: SourceDeletion, snapshot: Snapshot, route: Route) -> None:
        self._policy = policy
        self._snapshot = snapshot
        self._route = route

    def of(self, intent: TopicIntent) -> Outlook | None:
        """None while the source topic is not known to be gone. `intent`: of this route."""
        gone_ms = intent.source_gone_ms
        if not gone_ms:
            return None
        reason = self._hindrance(intent)
        if reason or self._policy.grace_s is None:
            return Outlook(gone_ms, reason=reason)
        return Outlook(gone_ms, gone_ms + round(self._policy.grace_s * 1_000))

    def _hindrance(self, intent: TopicIntent) -> str:
        if self._policy.grace_s is None:
            return "on_source_deletion is keep"
        if not (intent.target_created and intent.target_topic_id):
            return "it was not created by the route"
        if not intent.source_cluster_id:
            return "the cluster that its source topic was on is not known"
        if self._snapshot.switches.frozen:
            return "the fleet is frozen"
        return self._brake

    @cached_property
    def _brake(self) -> str:
        """Reason to doubt that the topics were deleted; "" if there is none."""
        wanted = [
            stored.value
            for key, stored in self._snapshot.topics.items()
            if key.route == self._route and stored.value.state is not TopicState.DELETING
        ]
        gone = sum(intent.source_gone_ms > 0 for intent in wanted)
        if gone < 2 or 2 * gone <= len(wanted):
            return ""
        return f"{gone} of {len(wanted)} topics of the route are gone at the source"
