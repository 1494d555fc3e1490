"""`/claims`: which fleet copies what to the topics of target clusters, as written on these clusters.

A fleet withdraws its own claims with its topics. What a fleet has left behind that is gone is withdrawn by
hand; a fleet that lives after all writes its claim again within ten seconds, and only loses its place if
another one has claimed the topic meanwhile.
"""

from __future__ import annotations

from typing import Any

from flask_openapi3 import APIBlueprint

from ureplicator_common.config.settings import Settings
from ureplicator_common.errors import OperatingError
from ureplicator_common.kafka.claim_records import Claim
from ureplicator_controller.api.access.roles import operator, viewer
from ureplicator_controller.api.http.load import asks_kafka
from ureplicator_controller.api.http.models.claims import (
    ClaimsResult,
    ClaimWithdrawn,
    WithdrawQuery,
)
from ureplicator_controller.api.http.models.requests import (
    AnyTopicPath,
    RouteQuery,
    chosen_route,
    chosen_routes,
)
from ureplicator_controller.api.http.models.responses import JsonResult, responses
from ureplicator_controller.api.http.openapi import group
from ureplicator_controller.api.http.problems import conflict, not_found
from ureplicator_controller.engines.claims.between_fleets import FleetClaims


def blueprint(*, settings: Settings, claims: FleetClaims) -> APIBlueprint:
    api = group("claims", __name__)

    @api.get("/claims", responses=responses(ClaimsResult, 404))
    @viewer
    @asks_kafka
    def list_claims(query: RouteQuery) -> JsonResult:
        """Claims on the topics of the routes' target clusters, by all fleets."""
        rows: list[dict[str, Any]] = []
        unread: list[dict[str, Any]] = []
        for cluster in dict.fromkeys(config.target for config in chosen_routes(settings, query)):
            try:
                found = claims.on(cluster)
            except OperatingError as error:
                unread.append({"cluster": cluster, "reason": str(error)})
            else:
                rows += [_shown(cluster, claim, holds=holds) for claim, holds in found]
        return {"claims": rows, "notRead": unread}

    @api.delete("/claims/<path:topic>", responses=responses(ClaimWithdrawn, 404, 409))
    @operator
    @asks_kafka
    def withdraw_claim(path: AnyTopicPath, query: WithdrawQuery) -> JsonResult:
        """Withdraw the claim of another fleet, which is gone, on a topic of the route's target cluster."""
        cluster = chosen_route(settings, query).target
        if query.fleet == settings.fleet:
            raise conflict(
                f"{query.fleet} is this fleet: its claims go with its topics",
                field="fleet",
                hint="delete the topic",
            )
        for claim, holds in claims.on(cluster):
            if (claim.target_topic, claim.fleet) == (path.topic, query.fleet):
                claims.withdraw(cluster, claim)
                return {"withdrawn": _shown(cluster, claim, holds=holds)}
        raise not_found(
            f"fleet {query.fleet} has no claim on {path.topic} of {cluster}",
            field="topic",
            hint="see GET /claims",
        )

    return api


def _shown(cluster: str, claim: Claim, *, holds: bool) -> dict[str, Any]:
    return {
        "cluster": cluster,
        "targetTopic": claim.target_topic,
        "fleet": claim.fleet,
        "route": claim.route,
        "sourceTopic": claim.source_topic,
        "sourceCluster": claim.source_cluster,
        "sinceMs": claim.since_ms,
        "holds": holds,
    }
