"""`/topics`: whitelisted topics, their ideal state, external view and lag. uReplicator's paths and verbs.

A topic that is being deleted is listed with that state until the last worker has released it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from flask import url_for
from flask_openapi3 import APIBlueprint

from ureplicator_common.config.live_routes import LiveRoutes
from ureplicator_common.config.settings import Settings
from ureplicator_common.model import (
    LaneKind,
    OffsetShift,
    Partition,
    PartitionState,
    Route,
    TopicKey,
    TopicState,
    WorkerId,
)
from ureplicator_common.znode_contents import TopicIntent
from ureplicator_controller.api.access.roles import operator, viewer
from ureplicator_controller.api.http.load import asks_kafka
from ureplicator_controller.api.http.models.requests import (
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
    TopicsQuery,
    chosen_route,
)
from ureplicator_controller.api.http.models.responses import JsonResult, responses, write_responses
from ureplicator_controller.api.http.models.topics import (
    TopicAdded,
    TopicChanged,
    TopicDetails,
    TopicList,
)
from ureplicator_controller.api.http.openapi import group
from ureplicator_controller.api.http.preconditions import etag
from ureplicator_controller.api.http.problems import bad_request, conflict
from ureplicator_controller.api.lag_collection.cache import LagCache
from ureplicator_controller.api.routes.offset import of_topic, topic_json
from ureplicator_controller.api.services.fleet_cache import FleetCache, FleetState
from ureplicator_controller.api.services.topic_lookup import (
    find_known_topic,
    known_routes,
    require_route,
)
from ureplicator_controller.api.services.topics import TopicService
from ureplicator_controller.api.services.validation import outlooks
from ureplicator_controller.core.reporting.held import with_held
from ureplicator_controller.core.reporting.lag import PartitionLag
from ureplicator_controller.core.state.exclusions import effective_state, partition_exclusion
from ureplicator_controller.core.state.external_view import ideal_entry
from ureplicator_controller.core.state.loads import recent_loads
from ureplicator_controller.core.state.mismatches import Mismatch, topic_mismatches
from ureplicator_controller.core.state.selection import selected_topics
from ureplicator_controller.core.state.snapshot import Snapshot
from ureplicator_controller.engines.target_topics import TargetTopic


def blueprint(
    *,
    settings: Settings,
    live: LiveRoutes,
    fleet: FleetCache,
    topics: TopicService,
    lag_cache: LagCache,
) -> APIBlueprint:
    api = group("topics", __name__)

    @api.get("/topics", responses=responses(TopicList, 404))
    @viewer
    def list_topics(query: TopicsQuery) -> JsonResult:
        """Names of all whitelisted topics, or of those that the filters select."""
        fleet_state = fleet.current()
        routes = known_routes(settings, fleet_state, query)
        require_route(query.route, known_routes(settings, fleet_state, RouteQuery()))
        names = selected_topics(
            fleet_state.snapshot,
            {route for route in routes if query.route in (None, str(route))},
            state=query.state,
            match=query.match,
            after=query.after,
        )
        shown = names[: query.limit]
        return {"topics": shown} | ({"next": shown[-1]} if len(shown) < len(names) else {})

    @api.get("/topics/<path:topic>", responses=responses(TopicDetails, 404))
    @viewer
    @asks_kafka
    def show_topic(path: AnyTopicPath, query: RouteQuery) -> JsonResult:
        """Ideal state, external view and lag of a topic, with the reasons for each mismatch."""
        fleet_state = fleet.current()
        key = find_known_topic(settings, fleet_state, path.topic, query)
        found = of_topic(lag_cache, key, fleet_state.snapshot.topics[key].value)
        outlook = _outlook(settings, fleet_state, key)
        shown = describe(fleet_state, key, found.partitions) | outlook | topic_json(found)
        return shown, 200, etag(fleet_state.nodes.get(fleet.paths.topic(key)))

    @api.delete("/topics/<path:topic>", responses=write_responses(TopicChanged, 404, 409))
    @operator
    def delete_topic(path: TopicPath, query: DeleteQuery, header: IfMatchHeader) -> JsonResult:
        """Stop copying a topic. The target topic is kept, and the positions unless `positions=forget`."""
        route = _route_to_delete_on(settings, fleet, path.topic, query)
        found = live.of(fleet.current().snapshot.switches.route_settings).get(route)
        intent = topics.delete(
            TopicKey(route, path.topic),
            is_auto_whitelisted=found is not None and found.config.auto_whitelist.enabled,
            forget_positions=query.positions == "forget",
            condition=header.condition,
        )
        return _changed(route, path.topic, intent)

    _add_whitelisting(api, settings=settings, topics=topics)
    _add_expanding(api, settings=settings, topics=topics)
    _add_pausing(api, settings=settings, topics=topics)
    return api


def _route_to_delete_on(
    settings: Settings, fleet: FleetCache, topic: str, query: DeleteQuery
) -> Route:
    """The configured route that is selected, or another one that has the topic."""
    fleet_state = fleet.current()
    selected = known_routes(settings, fleet_state, query)
    if not {config.route for config in settings.routes}.isdisjoint(selected):
        return chosen_route(settings, query).route
    key = find_known_topic(settings, fleet_state, topic, query)
    if query.positions == "forget":
        raise conflict(
            f"route {key.route} is not configured: positions on {key.route.target} cannot be deleted",
            field="positions",
            hint="delete the topic with its positions kept",
        )
    return key.route


def _outcome(target: TargetTopic) -> str:
    if target.is_created:
        return "created"
    return "raised" if target.is_raised else "existed"


def _add_whitelisting(api: APIBlueprint, *, settings: Settings, topics: TopicService) -> None:
    declared = write_responses(TopicAdded, 404, 409, status=201)

    @api.post("/topics", responses=declared)
    @operator
    @asks_kafka
    def add_topic(query: RouteQuery, body: AddTopicBody, header: IfMatchHeader) -> JsonResult:
        """Whitelist a topic: copy all of its partitions, or the given number. The target topic is created
        if it is missing."""
        return added(query, body.topic, body, header)

    @api.post("/topics/<path:topic>", responses=declared)
    @operator
    @asks_kafka
    def add_named_topic(
        path: TopicPath, query: RouteQuery, body: AddNamedTopicBody, header: IfMatchHeader
    ) -> JsonResult:
        """Whitelist the topic in the path."""
        return added(query, _named(path.topic, body.topic), body, header)

    def added(
        query: RouteQuery,
        topic: str,
        body: AddTopicBody | AddNamedTopicBody,
        header: IfMatchHeader,
    ) -> JsonResult:
        config = chosen_route(settings, query)
        intent, target = topics.add(
            config,
            topic,
            body.num_partitions,
            header.condition,
            raise_partitions=body.raise_partitions,
        )
        warnings = topics.limit_warnings(config, topic, intent)
        shown = _changed(config.route, topic, intent) | {"target": _outcome(target)}
        shown |= {"warnings": warnings} if warnings else {}
        location = url_for(".show_topic", topic=topic, src=config.source, dst=config.target)
        return shown, 201, {"Location": location}


def _add_expanding(api: APIBlueprint, *, settings: Settings, topics: TopicService) -> None:
    declared = write_responses(TopicChanged, 404, 409)

    @api.put("/topics", responses=declared)
    @operator
    @asks_kafka
    def expand_topic(query: RouteQuery, body: ExpandTopicBody, header: IfMatchHeader) -> JsonResult:
        """Copy more partitions after the source topic was expanded."""
        return expanded(query, body.topic, body, header)

    @api.put("/topics/<path:topic>", responses=declared)
    @operator
    @asks_kafka
    def expand_named_topic(
        path: TopicPath, query: RouteQuery, body: ExpandNamedTopicBody, header: IfMatchHeader
    ) -> JsonResult:
        """Copy more partitions of the topic in the path."""
        return expanded(query, _named(path.topic, body.topic), body, header)

    def expanded(
        query: RouteQuery,
        topic: str,
        body: ExpandTopicBody | ExpandNamedTopicBody,
        header: IfMatchHeader,
    ) -> JsonResult:
        config = chosen_route(settings, query)
        intent = topics.expand(
            config,
            topic,
            body.num_partitions,
            header.condition,
            raise_partitions=body.raise_partitions,
        )
        return _changed(config.route, topic, intent)


def _add_pausing(api: APIBlueprint, *, settings: Settings, topics: TopicService) -> None:
    declared = write_responses(TopicChanged, 404, 409)

    @api.post("/topics/<path:topic>/pause", responses=declared)
    @operator
    def pause_topic(
        path: TopicPath, query: RouteQuery, body: OptionalBody, header: IfMatchHeader
    ) -> JsonResult:
        """Pause copying; positions are kept."""
        config = chosen_route(settings, query)
        return shown(config.route, path.topic, topics.pause(config, path.topic, header.condition))

    @api.post("/topics/<path:topic>/resume", responses=declared)
    @operator
    def resume_topic(
        path: TopicPath, query: RouteQuery, body: ResumeTopicBody, header: IfMatchHeader
    ) -> JsonResult:
        """Go on copying where it was paused; with `restart`, also a topic that the leader stopped."""
        config = chosen_route(settings, query)
        condition = header.condition
        intent = topics.resume(config, path.topic, restart=body.restart, condition=condition)
        return shown(config.route, path.topic, intent)

    def shown(route: Route, topic: str, intent: TopicIntent) -> JsonResult:
        return _changed(route, topic, intent) | {"state": intent.state}


def _outlook(settings: Settings, fleet_state: FleetState, key: TopicKey) -> dict[str, Any]:
    intent = fleet_state.snapshot.topics[key].value
    found = outlooks(settings, fleet_state, key.route).of(intent)
    return {
        "sourceGoneMs": found and found.gone_ms,
        "targetGoesMs": found and found.delete_at_ms,
        "targetOutlook": found.text if found else "",
    }


def describe(
    fleet_state: FleetState, key: TopicKey, lags: Mapping[int, PartitionLag]
) -> dict[str, Any]:
    """Details of a topic: those of uReplicator, and mismatches with reasons."""
    snapshot = fleet_state.snapshot
    differing = topic_mismatches(snapshot, fleet_state.view, key)
    intent = snapshot.topics[key].value
    partitions = [Partition(key.route, key.topic, number) for number in range(intent.partitions)]
    view = {
        number: {worker: entry.state for worker, entry in entries.items()}
        for number, entries in sorted(fleet_state.view.topic(key).items())
    }
    return {
        "topic": key.topic,
        "route": str(key.route),
        "targetTopic": intent.target_topic,
        "lane": _lane(fleet_state, key),
        "state": intent.state,
        "effectiveState": effective_state(snapshot, key),
        "stopped": intent.stopped,
        "topicBlacklisted": key in snapshot.blacklist,
        "sourceTopicId": intent.source_topic_id,
        "targetTopicId": intent.target_topic_id,
        "targetCreated": intent.target_created,
        "partitions": intent.partitions,
        "blacklisted": sorted(intent.blacklisted),
        "idealState": {
            str(partition.number): _ideal(fleet_state, partition) for partition in partitions
        },
        "externalView": {str(number): states for number, states in view.items()},
        "serverToPartitionMapping": _by_worker(view),
        "serverToNumPartitionsMapping": _online_by_worker(view),
        "mismatches": [
            mismatch_json(mismatch)
            for mismatch in with_held(differing, snapshot, fleet_state.view, {key: lags})
        ],
        "excluded": {
            str(partition.number): why
            for partition in partitions
            if (why := partition_exclusion(snapshot, partition))
        },
        "offsets": {
            str(partition.number): asdict(shift)
            for partition in partitions
            if (shift := _shift(snapshot, partition, view.get(partition.number, ())))
        },
    }


def _shift(
    snapshot: Snapshot, partition: Partition, workers: Iterable[WorkerId]
) -> OffsetShift | None:
    """Shift of a partition's offsets, as a worker that holds it has measured it."""
    loads = (recent_loads(snapshot.loads, worker).get(partition) for worker in workers)
    return next((load.offsets for load in loads if load and load.offsets), None)


def _lane(fleet_state: FleetState, key: TopicKey) -> LaneKind:
    """The lane by the settings that the workers have; as whole batches until the leader has published
    them."""
    published = fleet_state.snapshot.routes.get(key.route)
    return LaneKind.RAW if published is None else published.value.lane(key.topic)


def mismatch_json(mismatch: Mismatch) -> dict[str, Any]:
    """`since` is in milliseconds since 1970; null before the leader's first decision."""
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
    for number, states in view.items():
        for worker, state in states.items():
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
    """The topic's name, from the path; the body may only repeat it."""
    if body not in (None, path):
        raise bad_request(
            "the topic in the body differs from the topic in the path",
            field="topic",
            hint="leave it out of the body",
        )
    return path


def _changed(route: Route, topic: str, intent: TopicIntent) -> dict[str, Any]:
    changed = {"topic": topic, "route": str(route), "partitions": intent.partitions}
    if intent.state is not TopicState.ACTIVE:
        changed["state"] = intent.state
    return changed
