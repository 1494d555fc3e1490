"""Responses about a controller itself."""

from __future__ import annotations

from pydantic import Field

from ureplicator_controller.api.http.models.responses import ResponseModel


class Health(ResponseModel):
    status: str
    id: str


class ShownController(ResponseModel):
    leads: bool
    host: str = Field(description="under which others reach it (controller.advertise)")
    port: int = Field(description="of REST and the dashboard")
    metricsPort: int = Field(description="of the daemon's own /metrics")
    version: str


class ControllerList(ResponseModel):
    controllers: dict[str, ShownController]


class Readiness(Health):
    leader: str | None
    controllers: list[str]
