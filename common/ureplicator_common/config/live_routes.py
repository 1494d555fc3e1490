"""Routes as they count: of the file, with their changes."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from ureplicator_common.config.live_changes import (
    LIVE_SETTINGS,
    SECTIONS,
    Changes,
    decoded_changes,
)
from ureplicator_common.config.relations import route_faults
from ureplicator_common.config.route import RouteConfig
from ureplicator_common.config.section import Fault, Faults, faults_of
from ureplicator_common.config.settings import Settings
from ureplicator_common.model import Route
from ureplicator_common.printable import did_you_mean

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LiveRoute:
    """A route with its changes. `refusal`: why they do not count here, so that `config` is that of the file;
    "" if they do."""

    config: RouteConfig
    changes: Changes
    refusal: str = ""


def changed_route(config: RouteConfig, changes: Changes) -> RouteConfig:
    """The route with these settings in place of its own. Raises Faults."""
    unknown = [Fault(key, _refusal(key)) for key in changes if key not in LIVE_SETTINGS]
    if unknown:
        raise Faults(unknown)
    tree = config.model_dump()
    for key, given in changes.items():
        is_part = key in SECTIONS and isinstance(given, Mapping)
        tree[key] = {**tree[key], **given} if is_part else given
    try:
        return RouteConfig.model_validate(tree)
    except ValidationError as error:
        raise Faults(faults_of(error)) from error


def _refusal(key: str) -> str:
    if key in RouteConfig.model_fields:
        return "is in the file only"
    return f"is no setting of a route{did_you_mean(key, LIVE_SETTINGS)}"


def shown_settings(config: RouteConfig) -> dict[str, Any]:
    """The settings that can be changed, as JSON has them."""
    return config.model_dump(mode="json", include=set(LIVE_SETTINGS))


def live_route(config: RouteConfig, text: str) -> LiveRoute:
    """A route with the changes that are stored for it; another version may have written them."""
    changes: Changes = {}
    try:
        changes = decoded_changes(text)
        return LiveRoute(changed_route(config, changes), changes)
    except Faults as error:
        return LiveRoute(config, changes, str(error))


def checked_route(
    settings: Settings, route: Route, changes: Changes, texts: Mapping[Route, str]
) -> RouteConfig:
    """A route with these changes, if it goes with the other routes and theirs (`texts`). Raises Faults."""
    routes = {
        route_config.route: live_route(route_config, texts.get(route_config.route, "")).config
        for route_config in settings.routes
    }
    config = next(route_config for route_config in settings.routes if route_config.route == route)
    routes[route] = changed_route(config, changes)
    _check_relations(settings, list(routes.values()))
    return routes[route]


def check_changes(settings: Settings, changes: Mapping[Route, Changes]) -> None:
    """Check the changes of all routes together. Raises Faults."""
    routes: list[RouteConfig] = []
    for config in settings.routes:
        try:
            routes.append(changed_route(config, changes.get(config.route, {})))
        except Faults as error:
            named = [Fault(f"{config.route}.{fault.key}", fault.message) for fault in error.faults]
            raise Faults(named) from error
    _check_relations(settings, routes)


def _check_relations(settings: Settings, routes: Sequence[RouteConfig]) -> None:
    faults = list(_relations(settings, routes))
    if faults:
        raise Faults(faults)


def _relations(settings: Settings, routes: Sequence[RouteConfig]) -> Iterator[Fault]:
    """Faults of routes beside each other, with the route in place of its number."""
    for fault in route_faults(settings.clusters, routes):
        _, number, *keys = fault.key.split(".", 2)
        yield Fault(".".join((str(routes[int(number)].route), *keys)), fault.message)


def routes_digest(configs: Sequence[RouteConfig]) -> str:
    """Digest by which files with different routes are told apart; their order does not count."""
    routes = sorted(config.model_dump_json() for config in configs)
    return hashlib.sha256("\n".join(routes).encode()).hexdigest()[:12]


class LiveRoutes:
    """The configured routes with their stored changes. For any thread."""

    def __init__(self, configs: Sequence[RouteConfig]) -> None:
        self._configs = {config.route: config for config in configs}
        self._last: tuple[Mapping[Route, str], Mapping[Route, LiveRoute]] | None = None

    def of(self, changes: Mapping[Route, str]) -> Mapping[Route, LiveRoute]:
        """Settings by route, in the order of the file. `changes`: as stored."""
        last = self._last
        if last is None or last[0] is not changes:
            found = {
                route: live_route(config, changes.get(route, ""))
                for route, config in self._configs.items()
            }
            for route, live in found.items():
                if live.refusal:
                    log.error(
                        "route %s: its changed settings do not count: %s", route, live.refusal
                    )
            self._last = last = changes, found
        return last[1]

    def config(self, route: Route, changes: Mapping[Route, str]) -> RouteConfig:
        """A configured route as it counts now."""
        return self.of(changes)[route].config
