"""`/blacklist`: partitions that are not copied although their topic is, and whole topics.

A partition is named in the query, as uReplicator's tools do, or in a JSON body; if both give a value,
the values must be equal. A change to what is so already is refused with 400, as in uReplicator: its
tools take anything but a 200 as "check before you repeat".

A partition's entry belongs to the topic's intent. It survives a pause and an expansion, and ends with
the topic. So the ETag that If-Match takes here is the topic's. A topic's entry (`scope=topic`)
belongs to the route, whether the topic is whitelisted or not: the topic is neither copied nor
auto-whitelisted.
"""

from __future__ import annotations

from typing import TypeVar

from flask_openapi3 import APIBlueprint

from ureplicator_common.config.settings import Settings
from ureplicator_common.model import TopicKey
from ureplicator_controller.api.access.roles import operator, viewer
from ureplicator_controller.api.http.models.blacklist import BlacklistChanged, BlacklistEntries
from ureplicator_controller.api.http.models.requests import (
    BlacklistBody,
    BlacklistQuery,
    IfMatchHeader,
    RouteQuery,
    chosen_route,
    missing,
)
from ureplicator_controller.api.http.models.responses import JsonResult, responses, write_responses
from ureplicator_controller.api.http.openapi import group
from ureplicator_controller.api.http.problems import bad_request
from ureplicator_controller.api.services.blacklist import BlacklistService
from ureplicator_controller.api.services.fleet_cache import FleetCache
from ureplicator_controller.api.services.topic_checks import note_on_topic
from ureplicator_controller.api.services.topic_lookup import known_routes

T = TypeVar("T")


def blueprint(
    *, settings: Settings, fleet: FleetCache, blacklist: BlacklistService
) -> APIBlueprint:
    api = group("blacklist", __name__)

    @api.get("/blacklist", responses=responses(BlacklistEntries, 404))
    @viewer
    def list_blacklist(query: RouteQuery) -> JsonResult:
        """Blacklisted partitions and topics."""
        fleet_state = fleet.current()
        routes = known_routes(settings, fleet_state, query)
        snapshot = fleet_state.snapshot
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
    @operator
    def change_blacklist(
        query: BlacklistQuery, body: BlacklistBody, header: IfMatchHeader
    ) -> JsonResult:
        """Add a partition, or with `scope=topic` a whole topic, to the blacklist, or remove it.

        Given in the query or in the body.
        """
        config = chosen_route(settings, query)
        topic = _required("topic", query.topic, body.topic)
        number = _merged("partition", query.partition, body.partition)
        listed = _required("opt", query.opt, body.opt) == "blacklist"
        _check_scope(number, _merged("scope", query.scope, body.scope))
        if number is None:
            blacklist.set_topic(config, topic, listed=listed, condition=header.condition)
        else:
            blacklist.set_partition(
                config, topic, number, listed=listed, condition=header.condition
            )
        return {
            "topic": topic,
            "partition": number,
            "route": str(config.route),
            "blacklisted": listed,
            "note": note_on_topic(TopicKey(config.route, topic), fleet.current().snapshot.topics),
        }

    return api


def _check_scope(number: int | None, scope: str | None) -> None:
    """Refuse a request that could mean a partition and would stop the whole topic."""
    if number is None and scope is None:
        raise bad_request(
            "neither partition nor scope is given",
            field="partition",
            hint="give a partition, or scope=topic for the whole topic",
        )
    if number is not None and scope is not None:
        raise bad_request(
            "partition and scope=topic are both given", field="scope", hint="give one of them"
        )


def _required(name: str, query: T | None, body: T | None) -> T:
    """A value that the query or the body must give."""
    value = _merged(name, query, body)
    if value is None:
        raise missing(BlacklistBody, name)
    return value


def _merged(name: str, query: T | None, body: T | None) -> T | None:
    """The value from the query or the body. Raises Problem if they differ."""
    value = body if query is None else query
    if body not in (None, value):
        raise bad_request(
            f"{name} in the query differs from {name} in the body", field=name, hint="give it once"
        )
    return value
