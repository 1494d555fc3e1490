"""`/positions`: the stored position of each partition, and requests for another one.

A request for another position takes the partition from its worker for the moment. It is written like any
other intent: the response says what was requested and what follows from it, GET shows the outcome.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flask_openapi3 import APIBlueprint

from ureplicator_common.config.settings import Settings
from ureplicator_common.kafka import Extent, PartitionUnavailable, Position
from ureplicator_common.kafka.provenance import Provenance
from ureplicator_common.model import Partition, Route, TopicKey, WorkerId
from ureplicator_common.znode_contents import NO_OFFSET, PositionChange
from ureplicator_controller.api.access.roles import operator_unless_dry_run, viewer
from ureplicator_controller.api.http.load import asks_kafka
from ureplicator_controller.api.http.models.positions import (
    ForgetPositionsQuery,
    PositionsPlanned,
    PositionsQuery,
    SetPositionsBody,
    SetPositionsQuery,
    TopicPositions,
)
from ureplicator_controller.api.http.models.requests import (
    AnyTopicPath,
    IfMatchHeader,
    TopicPath,
    chosen_route,
)
from ureplicator_controller.api.http.models.responses import JsonResult, responses, write_responses
from ureplicator_controller.api.http.openapi import group
from ureplicator_controller.api.http.preconditions import etag
from ureplicator_controller.api.http.request_ids import RequestIds
from ureplicator_controller.api.services.fleet_cache import FleetCache, FleetState
from ureplicator_controller.api.services.positions import (
    PlannedChange,
    PositionReading,
    PositionService,
    partition_numbers,
)
from ureplicator_controller.api.services.topic_lookup import find_topic
from ureplicator_controller.core.positions.effects import out_of_range
from ureplicator_controller.core.reporting.authorship import by_of, id_of

NO_POSITION = Position(NO_OFFSET)


def blueprint(
    *, settings: Settings, fleet: FleetCache, positions: PositionService, ids: RequestIds
) -> APIBlueprint:
    api = group("positions", __name__)

    @api.get("/positions/<path:topic>", responses=responses(TopicPositions, 404))
    @viewer
    @asks_kafka
    def show_positions(path: AnyTopicPath, query: PositionsQuery) -> JsonResult:
        """Stored position of each partition, the source's log, and who holds it."""
        fleet_state = fleet.current()
        key = find_topic(settings, fleet_state, path.topic, query)
        intent = fleet_state.snapshot.topics[key].value
        numbers = partition_numbers(key, intent, query.partition)
        readings = positions.read(key, intent, numbers)
        shown = {
            "topic": key.topic,
            "route": str(key.route),
            "targetTopic": intent.target_topic,
            "partitions": [
                {"partition": number}
                | _position_json(readings[number])
                | {
                    "heldBy": _holders(fleet_state, Partition(key.route, key.topic, number)),
                    "change": _change_json(intent.positions.get(number)),
                }
                for number in numbers
            ],
        }
        return shown, 200, etag(fleet_state.nodes.get(fleet.paths.topic(key)))

    _add_changes(api, settings=settings, fleet=fleet, positions=positions, ids=ids)
    return api


def _add_changes(
    api: APIBlueprint,
    *,
    settings: Settings,
    fleet: FleetCache,
    positions: PositionService,
    ids: RequestIds,
) -> None:
    declared = write_responses(PositionsPlanned, 404, 409)

    @api.post("/positions/<path:topic>", responses=declared)
    @operator_unless_dry_run
    @asks_kafka
    def set_positions(
        path: TopicPath, query: SetPositionsQuery, body: SetPositionsBody, header: IfMatchHeader
    ) -> JsonResult:
        """Copy on from another position: an end of the log, an offset, a time, or a group's offsets.

        The partition is taken from its worker for the moment.
        """
        config = chosen_route(settings, query)
        dry_run = query.dry_run == "true"
        planned = positions.set(
            config, path.topic, body, dry_run=dry_run, condition=header.condition
        )
        return shown_plan(config.route, path.topic, planned, dry_run=dry_run)

    @api.delete("/positions/<path:topic>", responses=declared)
    @operator_unless_dry_run
    @asks_kafka
    def forget_positions(
        path: TopicPath, query: ForgetPositionsQuery, header: IfMatchHeader
    ) -> JsonResult:
        """Forget the positions of a topic that is copied: it begins at the route's `start`."""
        config = chosen_route(settings, query)
        dry_run = query.dry_run == "true"
        planned = positions.forget(
            config, path.topic, query.partition, dry_run=dry_run, condition=header.condition
        )
        return shown_plan(config.route, path.topic, planned, dry_run=dry_run)

    def shown_plan(
        route: Route, topic: str, planned: Mapping[int, PlannedChange], *, dry_run: bool
    ) -> JsonResult:
        fleet_state, key = fleet.current(), TopicKey(route, topic)
        return {
            "topic": topic,
            "route": str(route),
            "dryRun": dry_run,
            "request": None if dry_run else ids.current(),
            "partitions": [
                _planned_json(change)
                | {"heldBy": _holders(fleet_state, Partition(*key, number)), "partition": number}
                for number, change in planned.items()
            ],
        }


def _position_json(reading: PositionReading) -> dict[str, Any]:
    stored, extent = reading.stored, reading.extent
    position = stored if isinstance(stored, Position) else NO_POSITION
    known = position.offset if position.offset >= 0 else None
    provenance = None if known is None else Provenance.decode(position.metadata)
    log = extent if isinstance(extent, Extent) else None
    lag = None if known is None or log is None else max(0, log.end - known)
    reasons = [str(part) for part in (stored, extent) if isinstance(part, PartitionUnavailable)]
    reason = "; ".join(reasons) or (
        "" if known is None or log is None else out_of_range(known, log)
    )
    return {
        "position": known,
        "leaderEpoch": position.leader_epoch if position.leader_epoch >= 0 else None,
        "writer": provenance.worker if provenance else None,
        "slot": provenance.slot if provenance else None,
        "ownerEpoch": provenance.owner_epoch if provenance else None,
        "logStart": log.start if log else None,
        "logEnd": log.end if log else None,
        "lagRecords": lag,
        **({"reason": reason} if reason else {}),
    }


def _change_json(change: PositionChange | None) -> dict[str, Any] | None:
    if change is None:
        return None
    return {
        "position": _or_null(change.offset),
        "outcome": change.outcome or "pending",
        "replaced": _or_null(change.replaced),
        "request": id_of(change.request),
        "by": by_of(change.request),
    }


def _planned_json(planned: PlannedChange) -> dict[str, Any]:
    effect = planned.effect
    return {
        "from": effect.before,
        "to": planned.position,
        "beginsAt": effect.begins_at,
        "repeated": effect.repeated,
        "skipped": effect.skipped,
        "lost": effect.lost,
        **({"refused": effect.refused} if effect.refused else {}),
    }


def _holders(fleet_state: FleetState, partition: Partition) -> list[WorkerId]:
    """Workers that report the partition, or have it assigned."""
    assigned = {
        worker
        for worker, stored in fleet_state.snapshot.assignments.items()
        if partition in stored.value.entries
    }
    return sorted({*fleet_state.view.of(partition), *assigned})


def _or_null(offset: int) -> int | None:
    return None if offset == NO_OFFSET else offset
