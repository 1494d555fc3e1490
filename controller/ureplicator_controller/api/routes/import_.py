"""`/import`: brings the fleet to what an export holds, one call for each item, or one for many topics.

Each item is checked and written separately, as an intent like any other, and the response tells whether
it was created, changed or unchanged. With `dry_run` nothing is written, neither on the clusters nor in
ZooKeeper. What is imported and what is refused is decided in `core.reporting.export`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from http import HTTPStatus
from typing import Any

from flask_openapi3 import APIBlueprint

from ureplicator_common.config.live_changes import Changes, encoded_changes
from ureplicator_common.config.live_routes import check_changes
from ureplicator_common.config.section import Faults
from ureplicator_common.config.settings import Settings
from ureplicator_common.model import Route, TopicKey, TopicState, WorkerId
from ureplicator_common.znode_contents import KnownWorker, Switches
from ureplicator_common.znodes.topics import MAX_TOPIC_PARTITIONS
from ureplicator_controller.api.access.roles import operator_unless_dry_run
from ureplicator_controller.api.http.load import asks_kafka
from ureplicator_controller.api.http.models.export import (
    RANGES_HINT,
    ImportBlacklistBody,
    ImportBlacklistQuery,
    ImportQuery,
    ImportResult,
    ImportSwitchesBody,
    ImportTopicBody,
    ImportTopicQuery,
    ImportTopicsBody,
    ImportWorkerBody,
    TopicEntry,
    TopicImportResult,
    TopicOutcomes,
)
from ureplicator_controller.api.http.models.requests import TopicPath, WorkerPath, chosen_route
from ureplicator_controller.api.http.models.responses import JsonResult, responses
from ureplicator_controller.api.http.openapi import group
from ureplicator_controller.api.http.problems import Problem, bad_request
from ureplicator_controller.api.routes.instances import worker_name
from ureplicator_controller.api.services.blacklist import BlacklistService
from ureplicator_controller.api.services.fleet_cache import FleetCache
from ureplicator_controller.api.services.switches import SwitchService
from ureplicator_controller.api.services.topic_batch import Entry, Outcome, TopicBatch
from ureplicator_controller.api.services.topic_import import ImportedTopic, TopicImporter
from ureplicator_controller.api.services.workers import WorkerService
from ureplicator_controller.core.reporting.export import (
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
    batch: TopicBatch,
    blacklist: BlacklistService,
    workers: WorkerService,
    switches: SwitchService,
) -> APIBlueprint:
    api = group("import", __name__)
    _add_topics(api, settings=settings, importer=importer, batch=batch, blacklist=blacklist)
    _add_workers(api, workers=workers)
    _add_switches(api, settings=settings, fleet=fleet, switches=switches)
    return api


def _add_topics(
    api: APIBlueprint,
    *,
    settings: Settings,
    importer: TopicImporter,
    batch: TopicBatch,
    blacklist: BlacklistService,
) -> None:
    @api.put("/import/topics/<path:topic>", responses=responses(TopicImportResult, 404, 409, 413))
    @operator_unless_dry_run
    @asks_kafka
    def import_topic(path: TopicPath, query: ImportTopicQuery, body: ImportTopicBody) -> JsonResult:
        """Import a topic of an export; a new one is copied from its committed positions."""
        config = chosen_route(settings, query)
        dry_run, unlist = query.dry_run == "true", query.listed == "false"
        given = _given(body, ImportTopicBody.model_fields)
        done = importer.import_topic(
            config, path.topic, given, unlist=unlist, dry_run=dry_run, giver=query.from_fleet
        )
        return _topic_imported(path.topic, done)

    @api.put("/import/topics", responses=responses(TopicOutcomes, 404, 413))
    @operator_unless_dry_run
    @asks_kafka
    def import_topics(query: ImportBlacklistQuery, body: ImportTopicsBody) -> JsonResult:
        """Bring many topics of a route to what is given, and remove others; each has a result of its own."""
        config = chosen_route(settings, query)
        dry_run = query.dry_run == "true"
        entries = {topic: _entry(topic, given) for topic, given in body.topics.items()}
        wanted = {name: entry for name, entry in entries.items() if isinstance(entry, Entry)}
        made = {
            outcome.topic: outcome
            for outcome in batch.import_topics(config, wanted, dry_run=dry_run)
        }
        outcomes = [
            Outcome(name, problem=entry) if isinstance(entry, Problem) else made[name]
            for name, entry in entries.items()
        ]
        outcomes += batch.remove(config, body.remove, dry_run=dry_run)
        return {"topics": [_outcome(outcome) for outcome in outcomes]}

    @api.put("/import/blacklist/<path:topic>", responses=responses(ImportResult, 404, 409, 413))
    @operator_unless_dry_run
    def import_listed(
        path: TopicPath, query: ImportBlacklistQuery, body: ImportBlacklistBody
    ) -> JsonResult:
        """Import a topic's entry in the blacklist, whether it is whitelisted or not."""
        config = chosen_route(settings, query)
        key = TopicKey(config.route, path.topic)
        listed = blacklist.import_topic(key, dry_run=query.dry_run == "true")
        return _imported({} if listed else None, {})


def _add_workers(api: APIBlueprint, *, workers: WorkerService) -> None:
    @api.put("/import/workers/<path:worker>", responses=responses(ImportResult, 404, 409, 413))
    @operator_unless_dry_run
    def import_worker(path: WorkerPath, query: ImportQuery, body: ImportWorkerBody) -> JsonResult:
        """Import a worker's tags, also of a worker that has not joined yet."""
        wanted = KnownWorker(
            max_slots=body.slots, blacklisted=body.blacklisted, draining=body.draining
        )
        dry_run = query.dry_run == "true"
        id = WorkerId(worker_name(path.worker))
        before, after = workers.import_worker(id, wanted, dry_run=dry_run)
        return _imported(worker_entry(before) if before else None, worker_entry(after))


def _add_switches(
    api: APIBlueprint, *, settings: Settings, fleet: FleetCache, switches: SwitchService
) -> None:
    @api.put("/import/switches", responses=responses(ImportResult, 409, 413))
    @operator_unless_dry_run
    def import_switches(query: ImportQuery, body: ImportSwitchesBody) -> JsonResult:
        """Import the live switches."""
        before = fleet.current().snapshot.switches
        texts = _settings_texts(settings, body.route_settings)

        def change(now: Switches) -> Switches:
            given = body.paused_routes
            paused = now.paused_routes if given is None else frozenset(given)
            return replace(
                now,
                auto_balancing=body.auto_balancing,
                frozen=body.frozen,
                paused_routes=paused,
                limits=now.limits if body.limits is None else body.limits,
                route_settings=now.route_settings if texts is None else texts,
            )

        after = change(before) if query.dry_run == "true" else switches.set(change)
        return _imported(switches_entry(before), switches_entry(after))


def _settings_texts(
    settings: Settings, given: Mapping[Route, Changes] | None
) -> dict[Route, str] | None:
    """Changed settings of routes as they are stored, also of a route that is not configured here."""
    if given is None:
        return None
    try:
        check_changes(settings, given)
    except Faults as error:
        raise bad_request(str(error), field="routeSettings") from error
    return {route: encoded_changes(changes) for route, changes in given.items() if changes}


def _given(body: ImportTopicBody, names: Iterable[str]) -> dict[str, Any]:
    """Values of `TopicIntent` by field, as far as the body has them."""
    read = {name: getattr(body, name) for name in names if name != "lane"}
    given = {name: value for name, value in read.items() if value is not None}
    below = given.get("partitions", MAX_TOPIC_PARTITIONS)
    for name, field in (("blacklisted", "blacklisted"), ("had_position", "hadPosition")):
        if name in given:
            given[name] = _numbers(field, given[name], below)
    if "state" in given:
        given["state"] = TopicState(given["state"])
    return given


def _numbers(field: str, text: str, partitions: int) -> frozenset[int]:
    try:
        return numbers(text, below=partitions)
    except ValueError as error:
        raise bad_request(str(error), field=field, hint=RANGES_HINT) from error


def _topic_imported(topic: str, done: ImportedTopic) -> dict[str, Any]:
    changes = list(
        differences(
            topic_entry(done.before) if done.before else None,
            topic_entry(done.made.intent),
        )
    )
    if done.unlisted:
        changes.append("removed from the route's blacklist")
    result = _result(changes, is_new=done.before is None, refused=done.made.refused)
    return result | ({"warnings": done.warnings} if done.warnings else {})


def _entry(topic: str, given: object) -> Entry | Problem:
    """The entry of a topic, or why the entry is wrong."""
    if isinstance(given, Problem):
        return given
    assert isinstance(given, TopicEntry)
    try:
        TopicPath(topic=topic)
        values = _given(given, given.model_fields_set - {"listed"})
    except Problem as problem:
        return problem
    return Entry(values, unlist=not given.listed)


def _outcome(outcome: Outcome) -> dict[str, Any]:
    if outcome.problem is not None:
        return {"topic": outcome.topic} | _problem(outcome.problem)
    if outcome.done is not None:
        return {"topic": outcome.topic} | dict(_topic_imported(outcome.topic, outcome.done))
    return {"topic": outcome.topic, "result": outcome.removal, "changes": [], "refused": []}


def _problem(problem: Problem) -> dict[str, Any]:
    result = "failed" if problem.status >= HTTPStatus.INTERNAL_SERVER_ERROR else "refused"
    names = ("status", "detail", "field", "hint")
    shown = {name: getattr(problem, name) for name in names}
    return {"result": result, "changes": [], "refused": [], "problem": shown}


def _imported(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> JsonResult:
    return _result(list(differences(before, after)), is_new=before is None)


def _result(changes: list[str], *, is_new: bool, refused: Sequence[Refusal] = ()) -> dict[str, Any]:
    result = "created" if is_new else "changed" if changes else "unchanged"
    return {
        "result": result,
        "changes": changes,
        "refused": [asdict(refusal) for refusal in refused],
    }
