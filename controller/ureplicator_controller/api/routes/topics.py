"""`/topics`: what is copied, and how well. uReplicator's paths and verbs.

A topic that is being deleted is shown, with that state, until the last worker has let go of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flask import url_for
from flask_openapi3 import APIBlueprint

from ureplicator_common.config.settings import Settings
from ureplicator_common.model import (
    Partition,
    PartitionState,
    Route,
    TopicIntent,
    TopicKey,
    TopicState,
    WorkerId,
)
from ureplicator_controller.api.http.openapi import group
from ureplicator_controller.api.http.preconditions import etag
from ureplicator_controller.api.http.problems import bad_request
from ureplicator_controller.api.http.request_models import (
    AddNamedTopicBody,
    AddTopicBody,
    AnyTopicPath,
    DeleteQuery,
    ExpandNamedTopicBody,
    ExpandTopicBody,
    IfMatchHeader,
    OptionalBody,
    ResumeTopicBody,
    RouteQuery,
    TopicPath,
    chosen_route,
    chosen_routes,
)
from ureplicator_controller.api.http.response_models import (
    JsonResult,
    TopicChanged,
    TopicDetails,
    TopicList,
    responses,
    write_responses,
)
from ureplicator_controller.api.lag.cache import LagCache
from ureplicator_controller.api.routes.offset import of_topic, topic_json
from ureplicator_controller.api.services.fleet_cache import FleetCache, FleetState
from ureplicator_controller.api.services.topic_lookup import find_topic
from ureplicator_controller.api.services.topics import TopicService
from ureplicator_controller.core.state.exclusions import effective_state, partition_exclusion
from ureplicator_controller.core.state.external_view import ideal_entry
from ureplicator_controller.core.state.mismatches import Mismatch, topic_mismatches


def blueprint(
    *, settings: Settings, fleet: FleetCache, topic_service: TopicService, lag_cache: LagCache
) -> APIBlueprint:
    api = group("topics", __name__)

    @api.get("/topics", responses=responses(TopicList, 404))
    def list_topics(query: RouteQuery) -> JsonResult:
        """Names of what is copied."""
        routes = {config.route for config in chosen_routes(settings, query)}
        topics = fleet.current().snapshot.topics
        return {"topics": sorted({key.topic for key in topics if key.route in routes})}

    @api.get("/topics/<path:topic>", responses=responses(TopicDetails, 404))
    def show_topic(path: AnyTopicPath, query: RouteQuery) -> JsonResult:
        """What a topic should be, what it is, and why it is not what it should be."""
        fleet_state = fleet.current()
        key = find_topic(settings, fleet_state, path.topic, query)
        found = of_topic(lag_cache, key, fleet_state.snapshot.topics[key].value)
        shown = describe(fleet_state, key) | topic_json(found)
        return shown, 200, etag(fleet_state.nodes.get(fleet.paths.topic(key)))

    @api.delete("/topics/<path:topic>", responses=write_responses(TopicChanged, 404))
    def delete_topic(path: TopicPath, query: DeleteQuery, header: IfMatchHeader) -> JsonResult:
        """Stop copying; the target stays, and the positions unless they are to be forgotten."""
        config = chosen_route(settings, query)
        intent = topic_service.delete(
            config,
            path.topic,
            forget_positions=query.positions == "forget",
            condition=header.condition,
        )
        return _answer(config.route, path.topic, intent)

    _offer_adding(api, settings=settings, topic_service=topic_service)
    _offer_expanding(api, settings=settings, topic_service=topic_service)
    _offer_pausing(api, settings=settings, topic_service=topic_service)
    return api


def _offer_adding(api: APIBlueprint, *, settings: Settings, topic_service: TopicService) -> None:
    said = write_responses(TopicChanged, 404, 409, status=201)

    @api.post("/topics", responses=said)
    def add_topic(query: RouteQuery, body: AddTopicBody, header: IfMatchHeader) -> JsonResult:
        """Copy a topic; all partitions by default. It is made on the target if it is missing."""
        return added(query, body.topic, body.num_partitions, header)

    @api.post("/topics/<path:topic>", responses=said)
    def add_named_topic(
        path: TopicPath, query: RouteQuery, body: AddNamedTopicBody, header: IfMatchHeader
    ) -> JsonResult:
        """Copy the topic in the path."""
        return added(query, _named(path.topic, body.topic), body.num_partitions, header)

    def added(
        query: RouteQuery, topic: str, partitions: int | None, header: IfMatchHeader
    ) -> JsonResult:
        config = chosen_route(settings, query)
        intent = topic_service.add(config, topic, partitions, header.condition)
        location = url_for(".show_topic", topic=topic, src=config.source, dst=config.target)
        return _answer(config.route, topic, intent), 201, {"Location": location}


def _offer_expanding(api: APIBlueprint, *, settings: Settings, topic_service: TopicService) -> None:
    said = write_responses(TopicChanged, 404, 409)

    @api.put("/topics", responses=said)
    def expand_topic(query: RouteQuery, body: ExpandTopicBody, header: IfMatchHeader) -> JsonResult:
        """Copy more partitions, after the source was expanded."""
        return expanded(query, body.topic, body.num_partitions, header)

    @api.put("/topics/<path:topic>", responses=said)
    def expand_named_topic(
        path: TopicPath, query: RouteQuery, body: ExpandNamedTopicBody, header: IfMatchHeader
    ) -> JsonResult:
        """Copy more partitions of the topic in the path."""
        return expanded(query, _named(path.topic, body.topic), body.num_partitions, header)

    def expanded(
        query: RouteQuery, topic: str, partitions: int, header: IfMatchHeader
    ) -> JsonResult:
        config = chosen_route(settings, query)
        intent = topic_service.expand(config, topic, partitions, header.condition)
        return _answer(config.route, topic, intent)


def _offer_pausing(api: APIBlueprint, *, settings: Settings, topic_service: TopicService) -> None:
    said = write_responses(TopicChanged, 404, 409)

    @api.post("/topics/<topic>/pause", responses=said)
    def pause_topic(
        path: TopicPath, query: RouteQuery, body: OptionalBody, header: IfMatchHeader
    ) -> JsonResult:
        """Stop copying for a while; positions stay."""
        config = chosen_route(settings, query)
        return shown(
            config.route, path.topic, topic_service.pause(config, path.topic, header.condition)
        )

    @api.post("/topics/<topic>/resume", responses=said)
    def resume_topic(
        path: TopicPath, query: RouteQuery, body: ResumeTopicBody, header: IfMatchHeader
    ) -> JsonResult:
        """Go on copying where it was paused; with `restart`, also a topic that the leader stopped."""
        config = chosen_route(settings, query)
        condition = header.condition
        intent = topic_service.resume(config, path.topic, restart=body.restart, condition=condition)
        return shown(config.route, path.topic, intent)

    def shown(route: Route, topic: str, intent: TopicIntent) -> JsonResult:
        return _answer(route, topic, intent) | {"state": intent.state}


def describe(fleet_state: FleetState, key: TopicKey) -> dict[str, Any]:
    """uReplicator's view of a topic, and what it lacked: mismatches with reasons."""
    snapshot = fleet_state.snapshot
    intent = snapshot.topics[key].value
    partitions = [Partition(key.route, key.topic, number) for number in range(intent.partitions)]
    view = {
        partition.number: {worker: entry.state for worker, entry in said.items()}
        for partition, said in sorted(fleet_state.view.items())
        if partition.key == key
    }
    return {
        "topic": key.topic,
        "route": str(key.route),
        "targetTopic": intent.target_topic or key.topic,
        "state": intent.state,
        "effectiveState": effective_state(snapshot, key),
        "stopped": intent.stopped,
        "topicBlacklisted": key in snapshot.blacklist,
        "sourceTopicId": intent.source_topic_id,
        "targetTopicId": intent.target_topic_id,
        "partitions": intent.partitions,
        "blacklisted": sorted(intent.blacklisted),
        "idealState": {str(each.number): _ideal(fleet_state, each) for each in partitions},
        "externalView": {str(number): said for number, said in view.items()},
        "serverToPartitionMapping": _by_worker(view),
        "serverToNumPartitionsMapping": _online_by_worker(view),
        "mismatches": [
            mismatch_json(found) for found in topic_mismatches(snapshot, fleet_state.view, key)
        ],
        "excluded": {
            str(each.number): why
            for each in partitions
            if (why := partition_exclusion(snapshot, each))
        },
    }


def mismatch_json(mismatch: Mismatch) -> dict[str, Any]:
    """`since` is in milliseconds since 1970; null while the leader has decided nothing."""
    return {
        "partition": mismatch.partition.number,
        "ideal": dict(mismatch.ideal),
        "actual": dict(mismatch.actual),
        "reason": mismatch.reason,
        "since": mismatch.since_ms or None,
    }


def _ideal(fleet_state: FleetState, partition: Partition) -> dict[WorkerId, PartitionState]:
    entry = ideal_entry(fleet_state.snapshot, partition)
    return {entry.worker: PartitionState.ONLINE} if entry and entry.worker is not None else {}


def _by_worker(
    view: Mapping[int, Mapping[WorkerId, PartitionState]],
) -> dict[WorkerId, dict[str, PartitionState]]:
    found: dict[WorkerId, dict[str, PartitionState]] = {}
    for number, said in view.items():
        for worker, state in said.items():
            found.setdefault(worker, {})[str(number)] = state
    return found


def _online_by_worker(
    view: Mapping[int, Mapping[WorkerId, PartitionState]],
) -> dict[WorkerId, int]:
    return {
        worker: sum(state is PartitionState.ONLINE for state in states.values())
        for worker, states in _by_worker(view).items()
    }


def _named(path: str, body: str | None) -> str:
    """The topic's name, from the path; the body may not say another."""
    if body not in (None, path):
        raise bad_request(
            "the topic in the body is not the one in the path",
            field="topic",
            hint="leave it out of the body",
        )
    return path


def _answer(route: Route, topic: str, intent: TopicIntent) -> dict[str, Any]:
    answer = {"topic": topic, "route": str(route), "partitions": intent.partitions}
    if intent.state is not TopicState.ACTIVE:
        answer["state"] = intent.state
    return answer
