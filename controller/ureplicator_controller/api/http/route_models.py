"""Requests and responses of `/routes`."""

from __future__ import annotations

from pydantic import Field

from ureplicator_common.config.route import RouteConfig
from ureplicator_common.config.settings import Settings
from ureplicator_controller.api.http.problems import not_found
from ureplicator_controller.api.http.request_models import Path
from ureplicator_controller.api.http.response_models import ResponseModel


class RoutePath(Path):
    """Any name: one that is not configured is a 404."""

    route: str


class RouteChanged(ResponseModel):
    route: str = Field(description="source.target")
    paused: bool


class ShownRoute(ResponseModel):
    paused: bool
    source: str = Field(description="name of the source cluster")
    target: str = Field(description="name of the target cluster")
    topics: int = Field(description="whitelisted topics")
    partitions: int = Field(description="whitelisted partitions")


class RouteList(ResponseModel):
    routes: dict[str, ShownRoute] = Field(description="by name, `source.target`")


def configured_route(settings: Settings, name: str) -> RouteConfig:
    """The route with this name. Raises Problem if there is none."""
    for config in settings.routes:
        if str(config.route) == name:
            return config
    raise not_found(
        f"no route {name} is configured",
        field="route",
        hint=f"the routes are {', '.join(sorted(str(each.route) for each in settings.routes))}",
    )
