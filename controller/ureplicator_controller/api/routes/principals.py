"""`/validation/principals`: quotas and SCRAM users of the source that are not at the target. Changes nothing.

They follow on no route: quotas are for the load of one cluster, and brokers show no password.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing

from flask_openapi3 import APIBlueprint

from ureplicator_common.config.route import RouteConfig
from ureplicator_common.config.settings import Settings
from ureplicator_common.errors import OperatingError
from ureplicator_common.kafka.principals import PrincipalReader
from ureplicator_controller.api.access.roles import viewer
from ureplicator_controller.api.http.load import asks_kafka
from ureplicator_controller.api.http.models.principals import PrincipalsResult
from ureplicator_controller.api.http.models.requests import RouteQuery, chosen_routes
from ureplicator_controller.api.http.models.responses import JsonResult, responses
from ureplicator_controller.api.http.openapi import group

Readers = Callable[[str], PrincipalReader]
Found = Mapping[str, str]

KINDS: Mapping[str, Callable[[PrincipalReader], Found]] = {
    "quota": lambda reader: reader.quotas(),
    "SCRAM user": lambda reader: reader.scram_users(),
}


def blueprint(*, settings: Settings, readers: Readers) -> APIBlueprint:
    api = group("principals", __name__)

    @api.get("/validation/principals", responses=responses(PrincipalsResult, 404))
    @viewer
    @asks_kafka
    def principals_validation(query: RouteQuery) -> JsonResult:
        """Quotas and SCRAM users of the source that the target lacks or has otherwise. Changes nothing."""
        rows: list[dict[str, object]] = []
        unread: list[dict[str, object]] = []
        configs = list(chosen_routes(settings, query))
        clusters = dict.fromkeys(name for config in configs for name in config.route)
        found = {name: _read(readers, name) for name in clusters}
        for config in configs:
            for kind in KINDS:
                here, there = (found[name][kind] for name in config.route)
                unread += _unread(config, kind, here, there)
                if not isinstance(here, OperatingError) and not isinstance(there, OperatingError):
                    rows += _different(config, kind, here, there)
        return {"principals": rows, "notRead": unread}

    return api


def _read(readers: Readers, cluster: str) -> Mapping[str, Found | OperatingError]:
    """All kinds of one cluster, by one client."""
    with closing(readers(cluster)) as reader:
        return {kind: _tried(read, reader) for kind, read in KINDS.items()}


def _tried(
    read: Callable[[PrincipalReader], Found], reader: PrincipalReader
) -> Found | OperatingError:
    try:
        return read(reader)
    except OperatingError as error:
        return error


def _unread(
    config: RouteConfig, kind: str, *found: Found | OperatingError
) -> Iterator[dict[str, object]]:
    for cluster, outcome in zip(config.route, found, strict=True):
        if isinstance(outcome, OperatingError):
            base = {"route": str(config.route), "kind": kind}
            yield {**base, "cluster": cluster, "reason": str(outcome)}


def _different(
    config: RouteConfig, kind: str, here: Found, there: Found
) -> Iterator[dict[str, object]]:
    for name, text in sorted(here.items()):
        if there.get(name) != text:
            base = {"route": str(config.route), "kind": kind, "name": name}
            yield {**base, "source": text, "target": there.get(name)}
