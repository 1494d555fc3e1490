"""`/blacklist`: partitions that are not copied, though their topic is; uReplicator's call.

A partition is named in the query, as uReplicator's tools do, or in a JSON body; where both say
something they must say the same. What is asked for and is so already is answered with 400, as
uReplicator did: its tools take anything but a 200 as "look before you repeat that".

The blacklist belongs to the topic's intent. It survives a pause and an expansion, and ends with the
topic.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from flask import Blueprint, Response, jsonify, request

from ureplicator_common.settings import Settings
from ureplicator_controller.api.fleet import Fleet
from ureplicator_controller.api.problems import bad_request
from ureplicator_controller.api.requests import (
    chosen_route,
    chosen_routes,
    json_body,
    partition_number,
    topic_name,
)
from ureplicator_controller.api.whitelist import Whitelist

_FIELDS = ("topic", "partition", "opt")
_OPTIONS = {"blacklist": True, "whitelist": False}


def blueprint(*, settings: Settings, fleet: Fleet, whitelist: Whitelist) -> Blueprint:
    api = Blueprint("blacklist", __name__)

    @api.get("/blacklist")
    def show() -> Response:
        routes = {config.route for config in chosen_routes(settings)}
        topics = fleet.picture().snapshot.topics
        return jsonify(
            blacklist=[
                {"topic": key.topic, "partition": number, "route": str(key.route)}
                for key in sorted(topics)
                if key.route in routes
                for number in sorted(topics[key].value.blacklisted)
            ]
        )

    @api.post("/blacklist")
    def change() -> Response:
        config = chosen_route(settings, also=_FIELDS)
        asked = _asked()
        topic = topic_name(asked.get("topic"))
        number = partition_number(asked.get("partition"))
        listed = _option(asked.get("opt"))
        whitelist.blacklist(config, topic, number, listed=listed)
        return jsonify(topic=topic, partition=number, route=str(config.route), blacklisted=listed)

    return api


def _asked() -> Mapping[str, Any]:
    """Query and body, as one."""
    body = json_body(_FIELDS, required=False)
    query = {name: request.args[name] for name in _FIELDS if name in request.args}
    for name in query.keys() & body.keys():
        if str(body[name]) != query[name]:
            raise bad_request(
                f"{name} in the query is not {name} in the body",
                field=name,
                cure="say it once",
            )
    return {**body, **query}


def _option(value: object) -> bool:
    if not isinstance(value, str) or value not in _OPTIONS:
        said = "opt is missing" if value is None else f"opt is {json.dumps(value)[:80]}"
        raise bad_request(said, field="opt", cure="use opt=blacklist or opt=whitelist")
    return _OPTIONS[value]
