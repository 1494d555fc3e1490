"""Requests and responses of `/limits`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ureplicator_common.model import LimitKind
from ureplicator_controller.api.http.models.requests import Body
from ureplicator_controller.api.http.models.responses import ResponseModel

MIN_BYTES_PER_S = 10_000
MAX_BYTES_PER_S = 10**12
MAX_LIMITS = 200
"""All of them, since every slot has a share of each."""

BytesPerSecond = Annotated[int, Field(strict=True, ge=MIN_BYTES_PER_S, le=MAX_BYTES_PER_S)]


class LimitBody(Body):
    bytes_per_second: BytesPerSecond = Field(
        alias="bytesPerSecond",
        title="a byte limit",
        description=f"a whole number from {MIN_BYTES_PER_S} to {MAX_BYTES_PER_S}; to copy nothing, pause",
        examples=[2_000_000],
    )


class LimitSet(ResponseModel):
    kind: LimitKind
    name: str = Field(description="of the route, topic (`route/topic`) or worker")
    bytesPerSecond: int | None = Field(description="null: not limited")


class LimitChanged(LimitSet):
    note: str = Field(description="on a name that the fleet does not have yet; empty: it has")


class ShownLimit(LimitSet):
    measuredBytesPerSecond: int = Field(description="copied lately, as workers report it")


class LimitList(ResponseModel):
    limits: list[ShownLimit]
