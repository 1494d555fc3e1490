"""`/validation`: counts of what is and what should be. Looking changes nothing.

uReplicator's `/validation/srcKafka` *expanded topics* when it was read. Here it compares what is
whitelisted with what the source has, and only tells.
"""

from __future__ import annotations

from collections.abc import Mapping

from flask import Blueprint, Response, jsonify

from ureplicator_common.kafka import TopicInfo
from ureplicator_common.model import Route, TopicState
from ureplicator_common.settings import Settings
from ureplicator_controller.api.clusters import Cluster
from ureplicator_controller.api.fleet import Fleet, Picture
from ureplicator_controller.api.requests import chosen_routes
from ureplicator_controller.api.topics import mismatch_json
from ureplicator_controller.core.view import mismatches, validate


def blueprint(*, settings: Settings, fleet: Fleet, clusters: Mapping[str, Cluster]) -> Blueprint:
    api = Blueprint("admin", __name__)

    @api.get("/validation")
    def validation() -> Response:
        chosen = [config.route for config in chosen_routes(settings)]
        picture = fleet.picture()
        one = chosen[0] if len(chosen) == 1 and len(settings.routes) > 1 else None
        found = [
            {"route": str(each.partition.route), "topic": each.partition.topic}
            | mismatch_json(each)
            for each in mismatches(picture.snapshot, picture.view)
            if one in (None, each.partition.route)
        ]
        counts = validate(picture.snapshot, picture.view, one).as_json()
        unreadable = [{"path": each.path, "why": each.why} for each in picture.snapshot.findings]
        return jsonify(counts | {"mismatches": found, "unreadable": unreadable})

    @api.get("/validation/srcKafka")
    def source_validation() -> Response:
        chosen = [config.route for config in chosen_routes(settings)]
        picture = fleet.picture()
        missing: list[str] = []
        mismatched: dict[str, int] = {}
        for route in chosen:
            source = clusters[route.source].recent_topics()
            gone, differing = source_differences(picture, route, source)
            prefix = f"{route}/" if len(chosen) > 1 else ""
            missing += [prefix + topic for topic in gone]
            mismatched |= {prefix + topic: count for topic, count in differing.items()}
        return jsonify(
            numMissingTopics=len(missing),
            missingTopics=missing,
            numMismatchedTopics=len(mismatched),
            numMismatchedTopicPartitions=sum(mismatched.values()),
            mismatchedTopicPartitions=mismatched,
        )

    return api


def source_differences(
    picture: Picture, route: Route, source: Mapping[str, TopicInfo]
) -> tuple[list[str], dict[str, int]]:
    """Whitelisted topics that the source lacks; those it has in another size -> by how many."""
    missing: list[str] = []
    mismatched: dict[str, int] = {}
    for key, stored in sorted(picture.snapshot.topics.items()):
        if key.route != route or stored.value.state is TopicState.DELETING:
            continue
        info = source.get(key.topic)
        if info is None:
            missing.append(key.topic)
        elif info.partitions != stored.value.partitions:
            mismatched[key.topic] = abs(info.partitions - stored.value.partitions)
    return missing, mismatched
