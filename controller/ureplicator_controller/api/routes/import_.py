"""`/import`: restores what an export holds, one call for each item.

Each item is checked and written separately, as an intent like any other, and the response tells whether
it was created, changed or unchanged. With `dry_run` nothing is written, neither on the clusters nor in
ZooKeeper. What is restored and what is refused is decided in `core.reporting.backup`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from flask_openapi3 import APIBlueprint

from ureplicator_common.config.settings import Settings
from ureplicator_common.contents import KnownWorker, Switches, TopicIntent
from ureplicator_common.model import TopicKey, TopicState, WorkerId
from ureplicator_controller.api.access.roles import operator_unless_dry_run
from ureplicator_controller.api.http.load import asks_kafka
from ureplicator_controller.api.http.models.backup import (
    RANGES_HINT,
    ImportBlacklistBody,
    ImportBlacklistQuery,
    ImportQuery,
    ImportResult,
    ImportSwitchesBody,
    ImportTopicBody,
    ImportTopicQuery,
    ImportWorkerBody,
    TopicImportResult,
)
from ureplicator_controller.api.http.models.requests import TopicPath, WorkerPath, chosen_route
from ureplicator_controller.api.http.models.responses import JsonResult, responses
from ureplicator_controller.api.http.openapi import group
from ureplicator_controller.api.http.problems import bad_request
from ureplicator_controller.api.routes.instances import worker_name
from ureplicator_controller.api.services.blacklist import BlacklistService
from ureplicator_controller.api.services.fleet_cache import FleetCache
from ureplicator_controller.api.services.switches import SwitchService
from ureplicator_controller.api.services.topic_import import Restoration, TopicImporter
from ureplicator_controller.api.services.workers import WorkerService
from ureplicator_controller.core.reporting.backup import (
    Refusal,
    differences,
    numbers,
    switches_entry,
    topic_entry,
    worker_entry,
)


def blueprint(
    *,
    settings: Settings,
    fleet: FleetCache,
    importer: TopicImporter,
    blacklist: BlacklistService,
    workers: WorkerService,
    switches: SwitchService,
) -> APIBlueprint:
    api = group("import", __name__)
    _add_topics(api, settings=settings, importer=importer, blacklist=blacklist)
    _add_workers(api, workers=workers)
    _add_switches(api, fleet=fleet, switches=switches)
    return api


def _add_topics(
    api: APIBlueprint, *, settings: Settings, importer: TopicImporter, blacklist: BlacklistService
) -> None:
    @api.put("/import/topics/<path:topic>", responses=responses(TopicImportResult, 404, 409, 413))
    @operator_unless_dry_run
    @asks_kafka
    def import_topic(path: TopicPath, query: ImportTopicQuery, body: ImportTopicBody) -> JsonResult:
        """Restore a topic from an export; a new one is copied from its committed positions."""
        config = chosen_route(settings, query)
        dry_run, unlist = query.dry_run == "true", query.listed == "false"
        done = importer.restore(config, path.topic, _intent(body), unlist=unlist, dry_run=dry_run)
        return _topic_imported(path.topic, done)

    @api.put("/import/blacklist/<path:topic>", responses=responses(ImportResult, 404, 409, 413))
    @operator_unless_dry_run
    def import_listed(
        path: TopicPath, query: ImportBlacklistQuery, body: ImportBlacklistBody
    ) -> JsonResult:
        """Restore a topic's entry in the blacklist, whether it is whitelisted or not."""
        config = chosen_route(settings, query)
        key = TopicKey(config.route, path.topic)
        listed = blacklist.restore_topic(key, dry_run=query.dry_run == "true")
        return _imported({} if listed else None, {})


def _add_workers(api: APIBlueprint, *, workers: WorkerService) -> None:
    @api.put("/import/workers/<path:worker>", responses=responses(ImportResult, 404, 409, 413))
    @operator_unless_dry_run
    def import_worker(path: WorkerPath, query: ImportQuery, body: ImportWorkerBody) -> JsonResult:
        """Restore a worker's tags, also of a worker that has not joined yet."""
        wanted = KnownWorker(
            max_slots=body.slots, blacklisted=body.blacklisted, draining=body.draining
        )
        dry_run = query.dry_run == "true"
        id = WorkerId(worker_name(path.worker))
        before, after = workers.restore(id, wanted, dry_run=dry_run)
        return _imported(worker_entry(before) if before else None, worker_entry(after))


def _add_switches(api: APIBlueprint, *, fleet: FleetCache, switches: SwitchService) -> None:
    @api.put("/import/switches", responses=responses(ImportResult, 409, 413))
    @operator_unless_dry_run
    def import_switches(query: ImportQuery, body: ImportSwitchesBody) -> JsonResult:
        """Restore the live switches."""
        before = fleet.current().snapshot.switches

        def change(now: Switches) -> Switches:
            given = body.paused_routes
            paused = now.paused_routes if given is None else frozenset(given)
            return replace(
                now,
                auto_balancing=body.auto_balancing,
                frozen=body.frozen,
                paused_routes=paused,
                limits=now.limits if body.limits is None else body.limits,
            )

        after = change(before) if query.dry_run == "true" else switches.set(change)
        return _imported(switches_entry(before), switches_entry(after))


def _intent(body: ImportTopicBody) -> TopicIntent:
    if body.initial_partitions > body.partitions:
        raise bad_request(
            f"initialPartitions {body.initial_partitions} exceeds partitions {body.partitions}",
            field="initialPartitions",
            hint="use at most as many as partitions",
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
        target_created=body.target_created,
        restarted=body.restarted,
        stopped=body.stopped,
    )


def _numbers(field: str, text: str, partitions: int) -> frozenset[int]:
    try:
        return numbers(text, below=partitions)
    except ValueError as error:
        raise bad_request(str(error), field=field, hint=RANGES_HINT) from error


def _topic_imported(topic: str, done: Restoration) -> JsonResult:
    changes = list(
        differences(
            topic_entry(done.before, topic) if done.before else None,
            topic_entry(done.made.intent, topic),
        )
    )
    if done.unlisted:
        changes.append("removed from the route's blacklist")
    result = _result(changes, is_new=done.before is None, refused=done.made.refused)
    return result | ({"warnings": done.warnings} if done.warnings else {})


def _imported(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> JsonResult:
    return _result(list(differences(before, after)), is_new=before is None)


def _result(changes: list[str], *, is_new: bool, refused: Sequence[Refusal] = ()) -> dict[str, Any]:
    result = "created" if is_new else "changed" if changes else "unchanged"
    return {"result": result, "changes": changes, "refused": [asdict(each) for each in refused]}
