"""Responses about blacklisted topics and partitions."""

from __future__ import annotations

from pydantic import Field

from ureplicator_controller.api.http.models.responses import ResponseModel


class BlacklistedPartition(ResponseModel):
    topic: str
    partition: int
    route: str


class BlacklistedTopic(ResponseModel):
    topic: str
    route: str


class BlacklistEntries(ResponseModel):
    blacklist: list[BlacklistedPartition]
    topics: list[BlacklistedTopic]


class BlacklistChanged(BlacklistedTopic):
    partition: int | None = Field(description="null: the whole topic")
    blacklisted: bool
    note: str = Field(description="on a name that the fleet does not have yet; empty: it has")
