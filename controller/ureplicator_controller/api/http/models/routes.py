"""Requests and responses of `/routes`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from ureplicator_common.config.live_changes import LIVE_SETTINGS
from ureplicator_common.config.route import RouteConfig
from ureplicator_common.config.settings import Settings
from ureplicator_common.coordination import Node
from ureplicator_common.printable import did_you_mean
from ureplicator_common.znode_contents import SyncKind, SyncReport
from ureplicator_common.znodes.codec import UnreadableContent
from ureplicator_common.znodes.paths import Paths
from ureplicator_common.znodes.routes import decode_sync
from ureplicator_controller.api.http.models.requests import Body, DryRun, Path, Query
from ureplicator_controller.api.http.models.responses import ResponseModel
from ureplicator_controller.api.http.problems import not_found


class RoutePath(Path):
    """Any name: one that is not configured is a 404."""

    route: str


class RouteChanged(ResponseModel):
    route: str = Field(description="source.target")
    paused: bool


class RouteSettingsQuery(Query):
    dry_run: DryRun = Field(default="false")


class RouteSettingsBody(Body):
    settings: dict[str, Any] = Field(
        min_length=1,
        title="settings of the route",
        description=f"by their names in the file ({', '.join(LIVE_SETTINGS)}); null: as in the file again",
        examples=[{"delivery": "exactly_once"}],
    )


class RouteSettingsChanged(ResponseModel):
    route: str = Field(description="source.target")
    changes: dict[str, Any] = Field(description="all settings that count in place of the file's")
    settings: dict[str, Any] = Field(description="the settings as they count now")


class ShownSync(ResponseModel):
    kind: str = Field(
        description="groups (offsets of consumer groups), configs (settings of topics), acls (access rights),"
        " heartbeats or claims (on target topics)"
    )
    lastPass: int | None = Field(
        description="end of the last pass that did not fail, in milliseconds since 1970: at most 10 s and an"
        " interval old while the sync works; null: none"
    )
    states: dict[str, int] = Field(description="state -> groups or topics, as of that pass")
    lastFailure: int | None = Field(
        description="milliseconds since 1970; null: the last pass did not fail"
    )
    error: str = Field(
        description="why the last pass failed, or the first group or topic is not as it should be"
    )
    age: float | None = Field(
        description="of the newest heartbeat at the target, in seconds, at the last pass; null: not known, or"
        " another kind"
    )


class ShownWorkers(ResponseModel):
    tags: list[str] = Field(description="that a worker must have")
    min: int = Field(description="fewer are reported; 0: none is required")
    max: int = Field(description="0: no limit")
    available: int = Field(description="live workers with the tags that are not drained")


class ShownRoute(ResponseModel):
    paused: bool
    source: str = Field(description="name of the source cluster")
    target: str = Field(description="name of the target cluster")
    topics: int = Field(description="whitelisted topics")
    partitions: int = Field(description="whitelisted partitions")
    workers: ShownWorkers = Field(description="workers that may copy the route")
    settings: dict[str, Any] = Field(
        description="settings that can be changed while the fleet runs, as they count now"
    )
    changes: dict[str, Any] = Field(description="those of them that count in place of the file's")
    refusal: str = Field(description="why the changes do not count here; empty: they do")
    syncs: list[ShownSync] = Field(description="syncs of the route, as configured")


class RouteList(ResponseModel):
    routes: dict[str, ShownRoute] = Field(description="by name, `source.target`")


def configured_route(settings: Settings, name: str) -> RouteConfig:
    """The route with this name. Raises Problem if there is none."""
    for config in settings.routes:
        if str(config.route) == name:
            return config
    names = sorted(str(known.route) for known in settings.routes)
    raise not_found(
        f"no route {name} is configured{did_you_mean(name, names)}",
        field="route",
        hint=f"the routes are {', '.join(names)}",
    )


def shown_syncs(
    config: RouteConfig, nodes: Mapping[str, Node], paths: Paths
) -> list[dict[str, object]]:
    """The syncs that the route has enabled, as the leader reported them."""
    enabled = {
        SyncKind.GROUPS: config.sync_group_offsets.enabled,
        SyncKind.CONFIGS: config.sync_topic_configs.enabled,
        SyncKind.ACLS: config.sync_topic_acls.enabled,
        SyncKind.HEARTBEATS: config.heartbeats.enabled,
        SyncKind.CLAIMS: config.claim_targets,
    }
    return [
        shown_sync(kind, nodes.get(paths.sync(kind, config.route)))
        for kind, is_enabled in enabled.items()
        if is_enabled
    ]


def shown_sync(kind: SyncKind, node: Node | None) -> dict[str, object]:
    try:
        report = decode_sync(node.data) if node is not None else SyncReport()
    except UnreadableContent as error:
        report = SyncReport(error=f"the report cannot be read: {error}")
    return {
        "kind": kind.value,
        "lastPass": report.passed_at_ms or None,
        "states": dict(report.states),
        "lastFailure": report.failed_at_ms or None,
        "error": report.error,
        "age": report.age_s,
    }
