"""`/blacklist`: partitions that are not copied, though their topic is; uReplicator's call.

A partition is named in the query, as uReplicator's tools do, or in a JSON body; where both say
something they must say the same. What is asked for and is so already is answered with 400, as
uReplicator did: its tools take anything but a 200 as "look before you repeat that".

The blacklist belongs to the topic's intent. It survives a pause and an expansion, and ends with the
topic. So the ETag that If-Match takes here is the topic's.
"""

from __future__ import annotations

from typing import TypeVar

from flask_openapi3 import APIBlueprint

from ureplicator_common.settings import Settings
from ureplicator_controller.api.answers import (
    Answered,
    Blacklist,
    BlacklistChanged,
    responses,
    writing,
)
from ureplicator_controller.api.fleet import Fleet
from ureplicator_controller.api.openapi import group
from ureplicator_controller.api.problems import bad_request
from ureplicator_controller.api.requests import (
    BlacklistBody,
    BlacklistQuery,
    Conditional,
    RouteQuery,
    chosen_route,
    chosen_routes,
    missing,
)
from ureplicator_controller.api.whitelist import Whitelist

_Said = TypeVar("_Said")


def blueprint(*, settings: Settings, fleet: Fleet, whitelist: Whitelist) -> APIBlueprint:
    api = group("blacklist", __name__)

    @api.get("/blacklist", responses=responses(Blacklist, 404))
    def list_blacklist(query: RouteQuery) -> Answered:
        """The partitions that are set aside."""
        routes = {config.route for config in chosen_routes(settings, query)}
        topics = fleet.picture().snapshot.topics
        return {
            "blacklist": [
                {"topic": key.topic, "partition": number, "route": str(key.route)}
                for key in sorted(topics)
                if key.route in routes
                for number in sorted(topics[key].value.blacklisted)
            ]
        }

    @api.post("/blacklist", responses=writing(BlacklistChanged, 404, 409))
    def change_blacklist(
        query: BlacklistQuery, body: BlacklistBody, header: Conditional
    ) -> Answered:
        """Set a partition aside, or take it back; said in the query or in the body."""
        config = chosen_route(settings, query)
        topic = _said("topic", query.topic, body.topic)
        number = _said("partition", query.partition, body.partition)
        listed = _said("opt", query.opt, body.opt) == "blacklist"
        whitelist.blacklist(config, topic, number, listed=listed, condition=header.condition)
        return {
            "topic": topic,
            "partition": number,
            "route": str(config.route),
            "blacklisted": listed,
        }

    return api


def _said(name: str, query: _Said | None, body: _Said | None) -> _Said:
    """What query and body say, as one."""
    said = body if query is None else query
    if said is None:
        raise missing(BlacklistBody, name)
    if body not in (None, said):
        raise bad_request(
            f"{name} in the query is not {name} in the body", field=name, cure="say it once"
        )
    return said
