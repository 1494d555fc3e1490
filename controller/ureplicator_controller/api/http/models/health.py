"""Responses about a controller itself."""

from __future__ import annotations

from ureplicator_controller.api.http.models.responses import ResponseModel


class Health(ResponseModel):
    status: str
    id: str


class Readiness(Health):
    leader: str | None
    controllers: list[str]
