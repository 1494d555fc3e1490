"""Claims of a route as its topics are: the leader writes those that are missing and withdraws the others.

Topics get their claims before they are whitelisted (`between_fleets`). Missing are those of topics that were
whitelisted before the route claimed its targets. If another fleet holds a claim, this one's copying goes on:
which of the two is to stop is for operators to decide, and the outcome names the other fleet.

The claim of a topic whose intent cannot be read stays: workers copy it on.

Claims of a route that is not configured any more go when its topics are deleted, if another route claims
targets on the same cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Set

from ureplicator_common.clock import Clock
from ureplicator_common.config.route import RouteConfig
from ureplicator_common.kafka.claim_records import Claim, Claims
from ureplicator_common.kafka.claims import ClaimLog
from ureplicator_common.model import Route, TopicState
from ureplicator_common.znode_contents import SyncKind
from ureplicator_controller.core.state.snapshot import Snapshot
from ureplicator_controller.engines.claims.between_fleets import new_claim
from ureplicator_controller.engines.syncs.ends import Ends
from ureplicator_controller.engines.syncs.thread import Term
from ureplicator_controller.engines.syncs.topic_sync import TopicSync, TopicSyncState

INTERVAL_S = 10.0
UNUSED_S = 30.0
"""Age at which a claim without a topic is withdrawn: its intent may be on the way."""


class ClaimWork:
    """Claims of one route. `Work` of a sync. `routes`: all that are configured."""

    kind = SyncKind.CLAIMS

    def __init__(
        self,
        *,
        fleet: str,
        config: RouteConfig,
        routes: Collection[Route],
        source: Callable[[], ClaimLog],
        target: Callable[[], ClaimLog],
        clock: Clock,
    ) -> None:
        self._fleet = fleet
        self._route = config.route
        self._routes = {str(route) for route in routes}
        self._ends = Ends(source, target)
        self._clock = clock

    def perform(self, snapshot: Snapshot, term: Term) -> Mapping[str, TopicSync]:
        source, target = self._ends.opened()
        may_write = term.reading()
        claims = target.read()
        wanted = {own.target_topic: own for own in self._wanted(snapshot, source.cluster_id())}
        outcomes = {
            claim.source_topic: self._kept(claim, claims, target, may_write)
            for claim in wanted.values()
        }
        for claim in self._unused(claims, wanted.keys() | self._withdrawn(snapshot)):
            if not _is_unreadable(claim, snapshot) and may_write():
                target.withdraw(claim)
        return outcomes

    def close(self) -> None:
        self._ends.close()

    def _wanted(self, snapshot: Snapshot, source_cluster: str) -> Iterator[Claim]:
        for key, stored in sorted(snapshot.topics.items()):
            if key.route == self._route and stored.value.state is not TopicState.DELETING:
                yield new_claim(
                    key,
                    stored.value.target_topic,
                    fleet=self._fleet,
                    source_cluster=source_cluster,
                    wall_ms=self._clock.wall_ms(),
                )

    def _kept(
        self, claim: Claim, claims: Claims, target: ClaimLog, may_write: Callable[[], bool]
    ) -> TopicSync:
        is_written = claims.of(self._fleet, claim.target_topic) != claim
        if is_written:
            if not may_write():
                return TopicSync(TopicSyncState.PENDING)
            target.write(claim)
        others = claims.others(self._fleet, claim.target_topic)
        if others:
            names = " and ".join(map(str, others))
            reason = f"target topic {claim.target_topic} is written by {names}, too"
            return TopicSync(TopicSyncState.REFUSED, reason, changes=int(is_written))
        if is_written:
            return TopicSync(TopicSyncState.CHANGED, f"{claim.target_topic} claimed", changes=1)
        return TopicSync(TopicSyncState.EQUAL)

    def _withdrawn(self, snapshot: Snapshot) -> Set[str]:
        """Target topics of routes that are not configured: their topics are stopped, not deleted."""
        return {
            stored.value.target_topic
            for key, stored in snapshot.topics.items()
            if str(key.route) not in self._routes and stored.value.state is not TopicState.DELETING
        }

    def _unused(self, claims: Claims, used: Set[str]) -> Iterator[Claim]:
        """Claims of the route, and of routes that are not configured, on targets of no topic; but no recent
        ones."""
        latest_ms = self._clock.wall_ms() - int(UNUSED_S * 1_000)
        for claim in list(claims.all_of(self._fleet)):
            is_ours = claim.route == str(self._route) or claim.route not in self._routes
            if is_ours and claim.target_topic not in used and claim.since_ms <= latest_ms:
                yield claim


def _is_unreadable(claim: Claim, snapshot: Snapshot) -> bool:
    """True if the intent that a claim is for cannot be read: its topic is copied on, so the claim stays."""
    return f"{claim.route}/{claim.source_topic}" in map(str, snapshot.unreadable_topics)
