"""Requests and responses of `/claims`."""

from __future__ import annotations

from pydantic import Field

from ureplicator_controller.api.http.models.requests import RouteQuery
from ureplicator_controller.api.http.models.responses import ResponseModel


class WithdrawQuery(RouteQuery):
    """Selection of a route and of a fleet."""

    fleet: str = Field(
        min_length=1,
        max_length=249,
        title="the name of a fleet",
        description="fleet whose claim is withdrawn; not this one",
    )


class ShownClaim(ResponseModel):
    cluster: str = Field(description="target cluster")
    targetTopic: str
    fleet: str
    route: str = Field(description="route of that fleet")
    sourceTopic: str
    sourceCluster: str = Field(description="id that its brokers give the source cluster")
    sinceMs: int = Field(description="when the claim was written; 0: not known")
    holds: bool = Field(description="of the claims on the topic this is the one that counts")


class UnreadClaims(ResponseModel):
    cluster: str
    reason: str


class ClaimsResult(ResponseModel):
    claims: list[ShownClaim]
    notRead: list[UnreadClaims] = Field(description="clusters whose claims are not known")


class ClaimWithdrawn(ResponseModel):
    withdrawn: ShownClaim
