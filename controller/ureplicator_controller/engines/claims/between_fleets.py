"""Claims of this fleet on the target clusters of its routes, seen by other fleets.

A topic is claimed before its intent is written, so of two fleets only one begins to copy. A claim that no
intent follows is withdrawn by the leader (`syncs`). With the claims of other fleets the origin of a
source topic is known beyond this fleet: what was copied from the target cluster is not copied back to it.

Nothing is connected before the first claim. Usable by several threads.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping

from ureplicator_common.clock import Clock
from ureplicator_common.config.route import RouteConfig
from ureplicator_common.errors import OperatingError, PermanentError
from ureplicator_common.kafka.claim_records import Claim, Claims
from ureplicator_common.kafka.claims import ClaimLog
from ureplicator_common.model import Route, TopicKey

log = logging.getLogger(__name__)

MAX_ORIGINS = 32
"""Clusters that records may have passed on their way."""


class ClaimRefused(PermanentError):
    """Another fleet copies to the target topic, or copied the source topic from the target cluster."""


def new_claim(
    key: TopicKey, target_topic: str, *, fleet: str, source_cluster: str, wall_ms: int
) -> Claim:
    """The claim of a topic that is to be written now. `source_cluster`: its id."""
    return Claim(
        fleet=fleet,
        target_topic=target_topic,
        route=str(key.route),
        source_cluster=source_cluster,
        source_topic=key.topic,
        since_ms=wall_ms,
    )


class FleetClaims:
    """Claims of one fleet. `logs`: opens the claims of a cluster by its name."""

    def __init__(
        self,
        *,
        fleet: str,
        routes: Mapping[Route, RouteConfig],
        logs: Callable[[str], ClaimLog],
        clock: Clock,
    ) -> None:
        self._fleet = fleet
        self._claiming = frozenset(
            route for route, config in routes.items() if config.claim_targets
        )
        self._open = logs
        self._clock = clock
        self._logs: dict[str, ClaimLog] = {}
        self._lock = threading.Lock()

    def take(self, key: TopicKey, target_topic: str, *, giver: str = "") -> None:
        """Claim the target topic, if the route claims its targets at all. `giver`: a fleet that gives it up.

        Raises ClaimRefused, ClaimsUnreadable, TopicRefused, ClusterUnavailable.
        """
        if key.route in self._claiming:
            with self._lock:
                self._take(key, target_topic, giver)

    def check(self, key: TopicKey, target_topic: str, *, giver: str = "") -> None:
        """Raise what `take` would raise now, but for TopicRefused. Nothing is written."""
        if key.route in self._claiming:
            with self._lock:
                self._require_free(key, target_topic, giver)

    def on(self, cluster: str) -> list[tuple[Claim, bool]]:
        """Claims of all fleets on the topics of a cluster, and of each whether it is the one that counts.

        Raises ClaimsUnreadable, ClusterUnavailable.
        """
        with self._lock:
            return list(self._log(cluster).read().each())

    def withdraw(self, cluster: str, claim: Claim) -> None:
        """Withdraw a claim of any fleet. Raises TopicRefused, ClusterUnavailable."""
        with self._lock:
            self._log(cluster).withdraw(claim)

    def close(self) -> None:
        for claim_log in self._logs.values():
            claim_log.close()

    def _take(self, key: TopicKey, target_topic: str, giver: str) -> None:
        target = self._log(key.route.target)
        claims = self._require_free(key, target_topic, giver)
        claim = new_claim(
            key,
            target_topic,
            fleet=self._fleet,
            source_cluster=self._log(key.route.source).cluster_id(),
            wall_ms=self._clock.wall_ms(),
        )
        if claims.of(self._fleet, target_topic) == claim:
            return
        target.write(claim)
        try:
            holder = target.read().holder(target_topic, giver=giver)
            self._refuse_other(key, target_topic, holder)
        except ClaimRefused:
            target.withdraw(claim)
            raise

    def _require_free(self, key: TopicKey, target_topic: str, giver: str) -> Claims:
        """The claims on the target cluster, if none of another fleet is in the way."""
        self._refuse_loop(key)
        claims = self._log(key.route.target).read()
        self._refuse_other(key, target_topic, claims.holder(target_topic, giver=giver))
        return claims

    def _log(self, cluster: str) -> ClaimLog:
        if cluster not in self._logs:
            self._logs[cluster] = self._open(cluster)
        return self._logs[cluster]

    def _refuse_other(self, key: TopicKey, target_topic: str, holder: Claim | None) -> None:
        if holder is not None and holder.fleet != self._fleet:
            raise ClaimRefused(
                f"{target_topic} on {key.route.target} is already the target of {holder}"
            )

    def _refuse_loop(self, key: TopicKey) -> None:
        target_id = self._log(key.route.target).cluster_id()
        for claim in self._origins(key):
            if claim.source_cluster == target_id:
                raise ClaimRefused(
                    f"replication loop: {key.topic} on {key.route.source} is a copy of"
                    f" {claim.source_topic} on {key.route.target} by {claim}"
                )

    def _origins(self, key: TopicKey) -> Iterator[Claim]:
        """Claims by which the records of the source topic came there, nearest first."""
        log, topic = self._log(key.route.source), key.topic
        for _ in range(MAX_ORIGINS):
            claim = log.read().holder(topic)
            if claim is None:
                return
            yield claim
            before = self._with_id(claim.source_cluster)
            if before is None:
                return
            log, topic = before, claim.source_topic

    def _with_id(self, cluster_id: str) -> ClaimLog | None:
        """Claims of the cluster with that id, if it is an end of a claiming route and responds."""
        for name in sorted({end for route in self._claiming for end in route}):
            try:
                if self._log(name).cluster_id() == cluster_id:
                    return self._log(name)
            except OperatingError as error:
                log.warning("origin of copies not looked for on %s: %s", name, error)
        return None
