"""`/blacklist`: partitions that are not copied, though their topic is, and whole topics; uReplicator's
call.

A partition is named in the query, as uReplicator's tools do, or in a JSON body; where both say
something they must say the same. What is asked for and is so already is answered with 400, as
uReplicator did: its tools take anything but a 200 as "look before you repeat that".

A partition's entry belongs to the topic's intent. It survives a pause and an expansion, and ends
with the topic. So the ETag that If-Match takes here is the topic's. A topic's entry (no partition
is named) belongs to the route, whether the topic is whitelisted or not: it is neither copied nor
whitelisted by itself.
"""

from __future__ import annotations

from typing import TypeVar

from flask_openapi3 import APIBlueprint

from ureplicator_common.config.settings import Settings
from ureplicator_controller.api.http.openapi import group
from ureplicator_controller.api.http.problems import bad_request
from ureplicator_controller.api.http.request_models import (
    BlacklistBody,
    BlacklistQuery,
    IfMatchHeader,
    RouteQuery,
    chosen_route,
    chosen_routes,
    missing,
)
from ureplicator_controller.api.http.response_models import (
    BlacklistChanged,
    BlacklistEntries,
    JsonResult,
    responses,
    write_responses,
)
from ureplicator_controller.api.services.fleet_cache import FleetCache
from ureplicator_controller.api.services.topics import TopicService

_Said = TypeVar("_Said")


def blueprint(
    *, settings: Settings, fleet: FleetCache, topic_service: TopicService
) -> APIBlueprint:
    api = group("blacklist", __name__)

    @api.get("/blacklist", responses=responses(BlacklistEntries, 404))
    def list_blacklist(query: RouteQuery) -> JsonResult:
        """The partitions and the topics that are set aside."""
        routes = {config.route for config in chosen_routes(settings, query)}
        snapshot = fleet.current().snapshot
        topics = snapshot.topics
        return {
            "blacklist": [
                {"topic": key.topic, "partition": number, "route": str(key.route)}
                for key in sorted(topics)
                if key.route in routes
                for number in sorted(topics[key].value.blacklisted)
            ],
            "topics": [
                {"topic": key.topic, "route": str(key.route)}
                for key in sorted(snapshot.blacklist)
                if key.route in routes
            ],
        }

    @api.post("/blacklist", responses=write_responses(BlacklistChanged, 404, 409))
    def change_blacklist(
        query: BlacklistQuery, body: BlacklistBody, header: IfMatchHeader
    ) -> JsonResult:
        """Set a partition aside, or without one the topic, or take it back.

        Said in the query or in the body.
        """
        config = chosen_route(settings, query)
        topic = _said("topic", query.topic, body.topic)
        number = _agreed("partition", query.partition, body.partition)
        listed = _said("opt", query.opt, body.opt) == "blacklist"
        if number is None:
            topic_service.blacklist_topic(config, topic, listed=listed, condition=header.condition)
        else:
            topic_service.blacklist(
                config, topic, number, listed=listed, condition=header.condition
            )
        return {
            "topic": topic,
            "partition": number,
            "route": str(config.route),
            "blacklisted": listed,
        }

    return api


def _said(name: str, query: _Said | None, body: _Said | None) -> _Said:
    """What query or body must say."""
    said = _agreed(name, query, body)
    if said is None:
        raise missing(BlacklistBody, name)
    return said


def _agreed(name: str, query: _Said | None, body: _Said | None) -> _Said | None:
    """What query and body say, as one."""
    said = body if query is None else query
    if body not in (None, said):
        raise bad_request(
            f"{name} in the query is not {name} in the body", field=name, hint="say it once"
        )
    return said
