"""What callers may send, judged once: bodies, names, counts, and the choice of a route.

Bodies are JSON objects with known fields only. Tools may leave the content type out, as uReplicator's
own examples with `curl -d` do. A page in somebody's browser may not: it can send a form to this port
without asking, but then says where it comes from (`Origin`), and is refused unless it sends JSON.
Numbers may be text ("4"), as uReplicator's tools send them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Any

from flask import request

from ureplicator_common.settings import RouteConfig, Settings
from ureplicator_controller.api.problems import bad_request, not_found

MOST_PARTITIONS = 100_000
"""Of one topic: beyond any broker's, and its nodes would be above ZooKeeper's limit long before."""

_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_COUNT = re.compile(r"[0-9]{1,9}")
_INTERNAL = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
_ROUTE_PARAMETERS = ("src", "dst")


def json_body(fields: Collection[str], *, required: bool) -> Mapping[str, Any]:
    """The request's JSON object; {} for an empty body that is not required."""
    data = request.get_data()
    if not data.strip():
        if required:
            raise bad_request("the body is empty", cure=_example(fields))
        return {}
    if request.mimetype != "application/json" and "Origin" in request.headers:
        raise bad_request(
            f"the content type is {request.mimetype or 'missing'}, not application/json",
            field="Content-Type",
            cure="send the header Content-Type: application/json",
        )
    body = _parsed(data, fields)
    for name in body:
        if name not in fields:
            raise bad_request(
                f"{name!r} is not a known field", field=name, cure=f"known are {_listed(fields)}"
            )
    return body


def _parsed(data: bytes, fields: Collection[str]) -> dict[str, Any]:
    try:
        body = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise bad_request(f"the body is not JSON: {error}", cure=_example(fields)) from error
    if not isinstance(body, dict):
        raise bad_request("the body is not a JSON object", cure=_example(fields))
    return body


def topic_name(value: object, *, field: str = "topic") -> str:
    """A name that a source topic can have."""
    if value is None:
        raise bad_request("the topic is missing", field=field, cure="name the topic")
    if not isinstance(value, str) or not _TOPIC.fullmatch(value) or value in (".", ".."):
        raise bad_request(
            f"{_short(value)} is not a legal topic name",
            field=field,
            cure="1 to 249 characters of a-z, A-Z, 0-9, '.', '_' and '-'; not '.' or '..'",
        )
    if value in _INTERNAL:
        raise bad_request(
            f"{value} belongs to the brokers and is not copied",
            field=field,
            cure="choose a topic that is not internal",
        )
    return value


def partition_count(value: object) -> int:
    """4 or "4"."""
    text = value if isinstance(value, str) else ""
    if isinstance(value, int) and not isinstance(value, bool):
        count = value
    elif _COUNT.fullmatch(text):
        count = int(text)
    else:
        raise bad_request(
            f"{_short(value)} is not a number of partitions",
            field="numPartitions",
            cure="a whole number above 0",
        )
    if not 1 <= count <= MOST_PARTITIONS:
        raise bad_request(
            f"{count} partitions are not possible",
            field="numPartitions",
            cure=f"a number from 1 to {MOST_PARTITIONS}",
        )
    return count


def partition_number(value: object) -> int:
    """3 or "3"; whether there is such a partition is for others to say."""
    text = value if isinstance(value, str) else ""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if _COUNT.fullmatch(text):
        return int(text)
    said = "the partition is missing" if value is None else f"{_short(value)} is not a partition"
    raise bad_request(said, field="partition", cure="a whole number from 0 on")


def only_parameters(*names: str) -> None:
    """A misspelt parameter would silently mean something else."""
    for name in request.args:
        if name not in names:
            cure = f"known are {_listed(names)}" if names else "there are none here"
            raise bad_request(f"{name!r} is not a known parameter", field=name, cure=cure)


def chosen_routes(settings: Settings, *, also: Collection[str] = ()) -> tuple[RouteConfig, ...]:
    """The routes that `?src=&dst=` leave. `also`: other parameters of the call."""
    only_parameters(*_ROUTE_PARAMETERS, *also)
    source, target = (request.args.get(name) for name in _ROUTE_PARAMETERS)
    chosen = tuple(
        config
        for config in settings.routes
        if source in (None, config.source) and target in (None, config.target)
    )
    if not chosen:
        raise not_found(
            f"there is no route from {source or 'anywhere'} to {target or 'anywhere'}",
            field="src" if source else "dst",
            cure=f"the routes are {_listed(str(config.route) for config in settings.routes)}",
        )
    return chosen


def chosen_route(settings: Settings, *, also: Collection[str] = ()) -> RouteConfig:
    """The one route that is meant."""
    chosen = chosen_routes(settings, also=also)
    if len(chosen) > 1:
        raise bad_request(
            f"there are several routes: {_listed(str(config.route) for config in chosen)}",
            field="src",
            cure="choose one with ?src=SOURCE&dst=TARGET",
        )
    return chosen[0]


def _listed(names: Any) -> str:
    return ", ".join(sorted(names))


def _example(fields: Collection[str]) -> str:
    values = {"topic": "orders", "numPartitions": 4, "partition": 0, "opt": "blacklist"}
    return "send " + json.dumps({name: values.get(name, "") for name in sorted(fields)})


def _short(value: object) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 80 else f"{text[:77]}..."
