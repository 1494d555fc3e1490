"""The requests that bring a fleet to what a file says. Pure.

The file has the form of an export (`ureplicator_cli.export_file`), of which everything but `version` and
`fleet` may be missing. An entry that is already as in the file needs no request, except for topics: what
differs there is judged by REST, which has the topics of the clusters, too.

    switches    fields that are missing stay; those that are there are wholly what the file has
    workers     drained or blacklisted as the file has it
    blacklist   topics are added to it
    topics      fields that are missing stay; new topics are added as by hand

With `prune` also goes what the file does not name, of the sections and routes that it has: topics,
entries of blacklists, and drained workers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ureplicator_cli import export_file as export_file
from ureplicator_cli.export_file import InvalidExport, Item
from ureplicator_common.model import Route

MAX_TOPICS = 100
"""Topics in one request: REST takes 200, and responds to 100 within seconds."""
MAX_BODY_BYTES = 60_000
"""REST takes 64 KiB."""
_FREE = {"slots": 0, "blacklisted": False, "draining": False}


@dataclass(frozen=True, slots=True)
class Step:
    """One item, or the topics of one request.

    `key`: the item in the file; of topics the beginning of their keys. `body` None: the item is already as
    in the file. `undoes`: what the request takes away, in words; such a request has no dry run of its own.
    """

    key: str
    path: tuple[str, ...]
    body: Mapping[str, Any] | None = None
    query: Mapping[str, str] = field(default_factory=dict)
    undoes: str = ""

    @property
    def is_of_topics(self) -> bool:
        return self.path == ("import", "topics")


def steps(
    document: Mapping[str, Any], present: Mapping[str, Any], *, prune: bool
) -> Iterator[Step]:
    """`present`: the response of GET /export. Raises InvalidExport."""
    entries = {**document, "topics": _with_entries(document.get("topics"))}
    items = list(export_file.items(entries))
    named = {item.key for item in items}
    yield from (_step(item, present) for item in items if item.path[0] != "topics")
    if prune:
        yield from _pruned_workers(document, present, named)
    yield from _topic_steps([item for item in items if item.path[0] == "topics"])
    if prune:
        yield from _pruned_topics(document, present, named)
        yield from _pruned_blacklist(document, present, named)


def _with_entries(topics: object) -> object:
    """A topic without fields (`orders:`) is one of which nothing but its being copied is wanted."""
    if not isinstance(topics, dict):
        return topics
    return {
        route: {topic: {} if entry is None else entry for topic, entry in of_route.items()}
        if isinstance(of_route, dict)
        else of_route
        for route, of_route in topics.items()
    }


def _step(item: Item, present: Mapping[str, Any]) -> Step:
    path = ("import", *item.path)
    if item.path[0] == "switches":
        wanted = {**present["switches"], **item.body}
        return Step(item.key, path, None if wanted == present["switches"] else wanted)
    if item.path[0] == "workers":
        there = present["workers"].get(item.path[1], _FREE)
        wanted = {"slots": there["slots"], **item.body}
        is_there = item.path[1] in present["workers"] and wanted == there
        return Step(item.key, path, None if is_there else wanted)
    assert item.route is not None
    listed = present["blacklist"].get(str(item.route), ())
    body: dict[str, Any] | None = None if item.path[1] in listed else {}
    return Step(item.key, path, body, _chosen(item.route))


def _topic_steps(items: list[Item]) -> Iterator[Step]:
    """Topics of a route at a time, as many as a request takes."""
    batch: dict[str, Any] = {}
    route: Route | None = None
    size = 0
    for item in items:
        entry = {**item.body, "listed": item.listed}
        added = len(json.dumps(entry)) + len(item.path[1]) + 6
        if batch and (
            item.route != route or len(batch) == MAX_TOPICS or size + added > MAX_BODY_BYTES
        ):
            yield _topics(route, {"topics": batch})
            batch, size = {}, 0
        route = item.route
        batch[item.path[1]] = entry
        size += added
    if batch:
        yield _topics(route, {"topics": batch})


def _pruned_topics(
    document: Mapping[str, Any], present: Mapping[str, Any], named: set[str]
) -> Iterator[Step]:
    for name in document.get("topics") or {}:
        there = present["topics"].get(str(name), {})
        gone = [topic for topic in there if f"topics.{name}.{topic}" not in named]
        for begin in range(0, len(gone), MAX_TOPICS):
            yield _topics(Route.parse(str(name)), {"remove": gone[begin : begin + MAX_TOPICS]})


def _pruned_blacklist(
    document: Mapping[str, Any], present: Mapping[str, Any], named: set[str]
) -> Iterator[Step]:
    for name in document.get("blacklist") or {}:
        for topic in present["blacklist"].get(str(name), ()):
            key = f"blacklist.{name}.{topic}"
            if key not in named and f"topics.{name}.{topic}" not in named:
                query = {"topic": topic, "scope": "topic", "opt": "whitelist"}
                query |= _chosen(Route.parse(str(name)))
                yield Step(key, ("blacklist",), {}, query, undoes="removed from the blacklist")


def _pruned_workers(
    document: Mapping[str, Any], present: Mapping[str, Any], named: set[str]
) -> Iterator[Step]:
    if "workers" not in document:
        return
    for worker in present["workers"]:
        if f"workers.{worker}" not in named:
            yield Step(f"workers.{worker}", ("import", "workers", worker), _FREE)


def _topics(route: Route | None, body: Mapping[str, Any]) -> Step:
    if route is None:
        raise InvalidExport("topics: a topic without a route")
    return Step(f"topics.{route}.", ("import", "topics"), body, _chosen(route))


def _chosen(route: Route) -> dict[str, str]:
    return {"src": route.source, "dst": route.target}
