"""`/export` and `/import`: what operators asked of the fleet, out and in again (see `core.backup`).

An import is one call an item: each is judged and written by itself, as an intent like any other, and
is told whether it was created, changed or there already. With `dryRun` nothing is written, on
either cluster or in ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Annotated, Any, Literal

from flask_openapi3 import APIBlueprint
from pydantic import BeforeValidator, Field

from ureplicator_common.config.settings import Settings
from ureplicator_common.model import (
    KnownWorker,
    Switches,
    TopicIntent,
    TopicKey,
    TopicState,
    WorkerId,
)
from ureplicator_common.znodes import MAX_PARTITIONS
from ureplicator_controller.api.http.openapi import group
from ureplicator_controller.api.http.problems import bad_request
from ureplicator_controller.api.http.request_models import (
    Body,
    OptionalBody,
    Query,
    RouteQuery,
    TopicName,
    TopicPath,
    WorkerPath,
    chosen_route,
)
from ureplicator_controller.api.http.response_models import JsonResult, ResponseModel, responses
from ureplicator_controller.api.routes.instances import worker_name
from ureplicator_controller.api.services.fleet_cache import FleetCache
from ureplicator_controller.api.services.topics import Restoration, TopicService
from ureplicator_controller.api.services.workers import Wishes
from ureplicator_controller.core.reporting.backup import (
    Refusal,
    backup_document,
    differences,
    numbers,
    topic_entry,
    worker_entry,
)

_DryRun = Annotated[
    Literal["true", "false"],
    Field(title="true or false", description="true: only show the changes"),
]
_RANGES = "numbers and ranges of partitions, as in 0-7,9"
_COUNT = f"a whole number from 1 to {MAX_PARTITIONS}"
_MOST_SLOTS = 10_000

Whole = Annotated[int, Field(strict=True, ge=1, le=MAX_PARTITIONS)]
Ranges = Annotated[
    str,
    Field(pattern=r"^([0-9]{1,9}(-[0-9]{1,9})?(,[0-9]{1,9}(-[0-9]{1,9})?)*)?$"),
    BeforeValidator(
        lambda value: str(value) if type(value) is int else value,
        json_schema_input_type=str,
    ),
]
"""YAML reads a lone number as one."""
_TOPIC_ID = "as the cluster tells it; empty: not known"
TopicId = Annotated[str, Field(pattern="^[a-zA-Z0-9_-]{0,64}$")]


class ImportBlacklistQuery(RouteQuery):
    dry_run: _DryRun = Field(default="false", alias="dryRun")


class ImportTopicQuery(ImportBlacklistQuery):
    listed: Annotated[
        Literal["true", "false"],
        Field(
            title="true or false",
            description="false: the topic is taken off the route's blacklist, too",
        ),
    ] = "true"


class ImportQuery(Query):
    dry_run: _DryRun = Field(default="false", alias="dryRun")


class TopicEntry(Body):
    partitions: Whole = Field(title="a number of partitions", description=_COUNT, examples=[4])
    initial_partitions: Annotated[int, Field(strict=True, ge=0, le=MAX_PARTITIONS)] = Field(
        alias="initialPartitions",
        title="a number of partitions",
        description=f"a whole number from 0 to {MAX_PARTITIONS}",
        examples=[4],
    )
    state: Literal["active", "paused"] = Field(
        title="a state", description="active or paused", examples=["active"]
    )
    blacklisted: Ranges = Field(default="", title="a list of partitions", description=_RANGES)
    had_position: Ranges = Field(
        default="", alias="hadPosition", title="a list of partitions", description=_RANGES
    )
    target_topic: TopicName | None = Field(
        default=None,
        alias="targetTopic",
        title="a legal topic name",
        description="name on the target; that of the route's naming when it is missing",
    )
    lane: Literal["raw"] = Field(default="raw", title="a lane", description="raw")
    whole: bool = Field(
        default=False, title="true or false", description="true: new partitions too", strict=True
    )
    source_topic_id: TopicId = Field(
        default="", alias="sourceTopicId", title="an id of a topic", description=_TOPIC_ID
    )
    target_topic_id: TopicId = Field(
        default="", alias="targetTopicId", title="an id of a topic", description=_TOPIC_ID
    )
    restarted: bool = Field(
        default=False,
        title="true or false",
        description="true: positions of former topics of that name do not count",
        strict=True,
    )
    stopped: Annotated[str, Field(max_length=1_000)] = Field(
        default="", title="a reason", description="why the leader stopped it; empty: it did not"
    )


class BlacklistEntry(OptionalBody):
    """There is nothing to say of it."""


class WorkerEntry(Body):
    slots: Annotated[int, Field(strict=True, ge=0, le=_MOST_SLOTS)] = Field(
        title="a number of slots", description=f"a whole number up to {_MOST_SLOTS}", examples=[2]
    )
    blacklisted: bool = Field(title="true or false", description="true or false", strict=True)
    draining: bool = Field(title="true or false", description="true or false", strict=True)


class SwitchesEntry(Body):
    auto_balancing: bool = Field(
        alias="autoBalancing", title="true or false", description="true or false", strict=True
    )
    frozen: bool = Field(title="true or false", description="true or false", strict=True)


class TopicExported(ResponseModel):
    partitions: int
    initialPartitions: int
    state: TopicState
    blacklisted: str
    hadPosition: str
    targetTopic: str
    lane: str
    whole: bool
    sourceTopicId: str
    targetTopicId: str
    restarted: bool
    stopped: str


class WorkerExported(ResponseModel):
    slots: int
    blacklisted: bool
    draining: bool


class SwitchesExported(ResponseModel):
    autoBalancing: bool
    frozen: bool


class FleetExport(ResponseModel):
    version: int
    fleet: str
    switches: SwitchesExported
    workers: dict[str, WorkerExported]
    blacklist: dict[str, list[str]]
    topics: dict[str, dict[str, TopicExported]]


class RejectedField(ResponseModel):
    field: str
    detail: str
    hint: str


class ImportResult(ResponseModel):
    """`refused`: what could not be done; all else is."""

    result: Literal["created", "changed", "unchanged"]
    changes: list[str]
    refused: list[RejectedField]


def blueprint(
    *, settings: Settings, fleet: FleetCache, topic_service: TopicService, wishes: Wishes
) -> APIBlueprint:
    api = group("backup", __name__)

    @api.get("/export", responses=responses(FleetExport))
    def export_fleet(query: Query) -> JsonResult:
        """What operators asked of the fleet, to be imported again."""
        return backup_document(fleet.current().snapshot)

    @api.put("/import/topics/<path:topic>", responses=responses(ImportResult, 404, 409, 413))
    def import_topic(path: TopicPath, query: ImportTopicQuery, body: TopicEntry) -> JsonResult:
        """Make a topic what an export says; a new one begins where its positions are."""
        config = chosen_route(settings, query)
        dry = query.dry_run == "true"
        off = query.listed == "false"
        done = topic_service.restore(config, path.topic, _intent(body), off=off, dry_run=dry)
        return _topic_imported(path.topic, done)

    @api.put("/import/blacklist/<path:topic>", responses=responses(ImportResult, 404, 409, 413))
    def import_listed(
        path: TopicPath, query: ImportBlacklistQuery, body: BlacklistEntry
    ) -> JsonResult:
        """Put a topic on the blacklist as an export says, whitelisted or not."""
        config = chosen_route(settings, query)
        key = TopicKey(config.route, path.topic)
        there = topic_service.restore_listed(key, dry_run=query.dry_run == "true")
        return _imported({} if there else None, {})

    @api.put("/import/workers/<path:worker>", responses=responses(ImportResult, 404, 409, 413))
    def import_worker(path: WorkerPath, query: ImportQuery, body: WorkerEntry) -> JsonResult:
        """Set a worker aside as an export says, also one that is not there yet."""
        wanted = KnownWorker(
            max_slots=body.slots, blacklisted=body.blacklisted, draining=body.draining
        )
        dry = query.dry_run == "true"
        before, after = wishes.restore(WorkerId(worker_name(path.worker)), wanted, dry_run=dry)
        return _imported(worker_entry(before) if before else None, worker_entry(after))

    @api.put("/import/switches", responses=responses(ImportResult, 409, 413))
    def import_switches(query: ImportQuery, body: SwitchesEntry) -> JsonResult:
        """Set the live switches as an export says."""
        before = fleet.current().snapshot.switches

        def change(now: Switches) -> Switches:
            return replace(now, auto_balancing=body.auto_balancing, frozen=body.frozen)

        after = change(before) if query.dry_run == "true" else wishes.switch(change)
        return _imported(_switches(before), _switches(after))

    return api


def _intent(body: TopicEntry) -> TopicIntent:
    if body.initial_partitions > body.partitions:
        raise bad_request(
            f"{body.initial_partitions} are more than the {body.partitions} partitions",
            field="initialPartitions",
            hint="at most as many as partitions",
        )
    return TopicIntent(
        partitions=body.partitions,
        initial_partitions=body.initial_partitions,
        state=TopicState(body.state),
        blacklisted=_numbers("blacklisted", body.blacklisted, body.partitions),
        had_position=_numbers("hadPosition", body.had_position, body.partitions),
        target_topic=body.target_topic or "",
        lane=body.lane,
        whole=body.whole,
        source_topic_id=body.source_topic_id,
        target_topic_id=body.target_topic_id,
        restarted=body.restarted,
        stopped=body.stopped,
    )


def _numbers(field: str, text: str, partitions: int) -> frozenset[int]:
    try:
        return numbers(text, below=partitions)
    except ValueError as error:
        raise bad_request(str(error), field=field, hint=_RANGES) from error


def _switches(switches: Switches) -> dict[str, Any]:
    return {"autoBalancing": switches.auto_balancing, "frozen": switches.frozen}


def _topic_imported(topic: str, done: Restoration) -> JsonResult:
    changes = list(
        differences(
            topic_entry(done.before, topic) if done.before else None,
            topic_entry(done.made.intent, topic),
        )
    )
    if done.taken_off:
        changes.append("taken off the route's blacklist")
    return _told(changes, is_new=done.before is None, refused=done.made.refused)


def _imported(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> JsonResult:
    return _told(list(differences(before, after)), is_new=before is None)


def _told(changes: list[str], *, is_new: bool, refused: Sequence[Refusal] = ()) -> JsonResult:
    result = "created" if is_new else "changed" if changes else "unchanged"
    return {"result": result, "changes": changes, "refused": [asdict(each) for each in refused]}
