"""Response of `/validation/principals`."""

from __future__ import annotations

from pydantic import Field

from ureplicator_controller.api.http.models.responses import ResponseModel


class ShownPrincipal(ResponseModel):
    route: str
    kind: str = Field(description="quota or SCRAM user")
    name: str = Field(description="as in `user alice, client-id *`; `*`: the default")
    source: str = Field(description="limits, or mechanisms: what the source has")
    target: str | None = Field(description="what the target has; null: nothing")


class UnreadPrincipals(ResponseModel):
    route: str
    kind: str
    cluster: str
    reason: str


class PrincipalsResult(ResponseModel):
    principals: list[ShownPrincipal] = Field(
        description="quotas and SCRAM users of the source that the target lacks or has otherwise"
    )
    notRead: list[UnreadPrincipals] = Field(
        description="kinds that a cluster did not show: nothing is known of them"
    )
