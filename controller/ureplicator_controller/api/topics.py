"""`/topics`: what is copied, and how well. uReplicator's paths and verbs.

A topic that is being deleted is shown, with that state, until the last worker has let go of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flask import Blueprint, Response, jsonify, url_for

from ureplicator_common.model import (
    Partition,
    PartitionState,
    Route,
    TopicIntent,
    TopicKey,
    TopicState,
    WorkerId,
)
from ureplicator_common.settings import Settings
from ureplicator_controller.api.fleet import Fleet, Picture
from ureplicator_controller.api.positions import Positions
from ureplicator_controller.api.problems import bad_request, not_found
from ureplicator_controller.api.requests import (
    chosen_route,
    chosen_routes,
    json_body,
    partition_count,
    partition_number,
    topic_name,
)
from ureplicator_controller.api.whitelist import Whitelist, refuse_partition
from ureplicator_controller.core.view import Mismatch, ideal_entry, topic_mismatches

_FIELDS = ("topic", "numPartitions")


def blueprint(
    *, settings: Settings, fleet: Fleet, whitelist: Whitelist, positions: Positions
) -> Blueprint:
    api = Blueprint("topics", __name__)

    @api.get("/topics")
    def list_topics() -> Response:
        routes = {config.route for config in chosen_routes(settings)}
        topics = fleet.picture().snapshot.topics
        return jsonify(topics=sorted({key.topic for key in topics if key.route in routes}))

    @api.get("/topics/<path:topic>")
    def show_topic(topic: str) -> Response:
        picture = fleet.picture()
        key = _find(settings, picture, topic)
        shown = describe(picture, key)
        known, reason = positions.of(key, picture.snapshot.topics[key].value)
        return jsonify(
            shown | {"positions": known} | ({"positionsReason": reason} if reason else {})
        )

    @api.post("/topics")
    def add_topic() -> tuple[Response, int, Mapping[str, str]]:
        return added(json_body(_FIELDS, required=True), None)

    @api.post("/topics/<path:topic>")
    def add_named_topic(topic: str) -> tuple[Response, int, Mapping[str, str]]:
        return added(json_body(_FIELDS, required=False), topic)

    def added(
        body: Mapping[str, Any], named: str | None
    ) -> tuple[Response, int, Mapping[str, str]]:
        config = chosen_route(settings)
        topic = _named(body, named)
        count = body.get("numPartitions")
        intent = whitelist.add(config, topic, None if count is None else partition_count(count))
        location = url_for(".show_topic", topic=topic, src=config.source, dst=config.target)
        return _answer(config.route, topic, intent), 201, {"Location": location}

    @api.put("/topics")
    def expand_topic() -> Response:
        return expanded(json_body(_FIELDS, required=True), None)

    @api.put("/topics/<path:topic>")
    def expand_named_topic(topic: str) -> Response:
        return expanded(json_body(_FIELDS, required=True), topic)

    def expanded(body: Mapping[str, Any], named: str | None) -> Response:
        config = chosen_route(settings)
        topic = _named(body, named)
        if body.get("numPartitions") is None:
            raise bad_request(
                "numPartitions is missing",
                field="numPartitions",
                cure="say how many partitions the topic shall have",
            )
        intent = whitelist.expand(config, topic, partition_count(body["numPartitions"]))
        return _answer(config.route, topic, intent)

    @api.delete("/topics/<path:topic>")
    def delete_topic(topic: str) -> Response:
        config = chosen_route(settings)
        return _answer(config.route, topic, whitelist.delete(config, topic_name(topic)))

    _offer_positions(api, settings=settings, fleet=fleet, positions=positions)
    _offer_pausing(api, settings=settings, whitelist=whitelist)
    return api


def _offer_positions(
    api: Blueprint, *, settings: Settings, fleet: Fleet, positions: Positions
) -> None:
    @api.get("/offset/<topic>/<partition>")
    def show_position(topic: str, partition: str) -> Response:
        picture = fleet.picture()
        key = _find(settings, picture, topic_name(topic))
        number = partition_number(partition)
        intent = picture.snapshot.topics[key].value
        refuse_partition(key, intent, number)
        known, reason = positions.of(key, intent)
        shown = {"topic": key.topic, "partition": number, "route": str(key.route)}
        position = known[str(number)] if known is not None else None
        return jsonify(
            shown | {"position": position} | ({"positionReason": reason} if reason else {})
        )


def _offer_pausing(api: Blueprint, *, settings: Settings, whitelist: Whitelist) -> None:
    @api.post("/topics/<topic>/pause")
    def pause_topic(topic: str) -> Response:
        return paused(topic, True)

    @api.post("/topics/<topic>/resume")
    def resume_topic(topic: str) -> Response:
        return paused(topic, False)

    def paused(named: str, wanted: bool) -> Response:
        config = chosen_route(settings)
        topic = topic_name(named)
        json_body((), required=False)
        intent = whitelist.set_paused(config, topic, paused=wanted)
        return jsonify(
            topic=topic,
            route=str(config.route),
            partitions=intent.partitions,
            state=intent.state,
        )


def describe(picture: Picture, key: TopicKey) -> dict[str, Any]:
    """uReplicator's view of a topic, and what it lacked: mismatches with reasons."""
    snapshot = picture.snapshot
    intent = snapshot.topics[key].value
    partitions = [Partition(key.route, key.topic, number) for number in range(intent.partitions)]
    view = {
        partition.number: {worker: entry.state for worker, entry in said.items()}
        for partition, said in sorted(picture.view.items())
        if partition.key == key
    }
    return {
        "topic": key.topic,
        "route": str(key.route),
        "targetTopic": intent.target_topic or key.topic,
        "state": intent.state,
        "partitions": intent.partitions,
        "blacklisted": sorted(intent.blacklisted),
        "idealState": {str(each.number): _ideal(picture, each) for each in partitions},
        "externalView": {str(number): said for number, said in view.items()},
        "serverToPartitionMapping": _by_worker(view),
        "serverToNumPartitionsMapping": _online_by_worker(view),
        "mismatches": [
            mismatch_json(found) for found in topic_mismatches(snapshot, picture.view, key)
        ],
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


def _ideal(picture: Picture, partition: Partition) -> dict[WorkerId, PartitionState]:
    entry = ideal_entry(picture.snapshot, partition)
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


def _find(settings: Settings, picture: Picture, topic: str) -> TopicKey:
    """The whitelisted topic that is meant; asks for a route only where it matters."""
    routes = [config.route for config in chosen_routes(settings)]
    topics = picture.snapshot.topics
    keys = [key for route in routes if (key := TopicKey(route, topic)) in topics]
    if not keys:
        raise not_found(
            f"{topic!r} is not whitelisted",
            field="topic",
            cure="GET /topics lists those that are; POST /topics adds one",
        )
    if len(keys) > 1:
        chosen_route(settings)
    return keys[0]


def _named(body: Mapping[str, Any], named: str | None) -> str:
    """The topic's name, from the path or from the body; they may not differ."""
    if named is None:
        return topic_name(body.get("topic"))
    if body.get("topic", named) != named:
        raise bad_request(
            "the topic in the body is not the one in the path",
            field="topic",
            cure="leave it out of the body",
        )
    return topic_name(named)


def _answer(route: Route, topic: str, intent: TopicIntent) -> Response:
    answer = {"topic": topic, "route": str(route), "partitions": intent.partitions}
    if intent.state is not TopicState.ACTIVE:
        answer["state"] = intent.state
    return jsonify(answer)
