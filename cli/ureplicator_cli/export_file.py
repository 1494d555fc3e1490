"""The file of `ureplicator export` and `ureplicator import`: YAML for people and for git.

Sorted, one fact per line, without the time of the export: two exports differ where the fleets do. Only
the form of the whole is checked here, because a misspelt section would silently import nothing. Items
are checked by REST, which names the field at fault.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ureplicator_common.config.yaml_file import UnreadableFile, read_file
from ureplicator_common.model import Route

VERSION = 1
SECTIONS = ("switches", "workers", "blacklist", "topics")

_HEAD = """\
# Topics and settings of fleet {fleet}, as its operators requested them. `ureplicator import FILE` restores
# them: what is listed is created or changed, what is not listed is left alone. Positions are not listed:
# they are in Kafka, under the fleet's name.
"""
_ABOUT = {
    "switches": """\
autoBalancing: partitions move when workers join or are lost. frozen: no automatic moves.
# pausedRoutes: routes of which nothing is copied. limits: bytes per second that may be fetched.
# routeSettings: what counts in place of the settings of the controllers' files.""",
    "workers": "Drained workers, which receive no partitions. All others register themselves.",
    "blacklist": "By route: topics that are not copied, whether they are whitelisted or not.",
    "topics": """\
By route. initialPartitions: partitions from this number on were added later, and start at their first
# record. hadPosition: partitions with a stored position; if the position of one is missing, the
# partition goes to ERROR and does not restart.""",
}


class InvalidExport(Exception):
    """The file as a whole cannot be imported; the text names the key at fault."""


@dataclass(frozen=True, slots=True)
class Item:
    """One entry to import: its key in the file, the path and the body of its REST call.

    `listed`: for a topic, whether the file has it on its route's blacklist.
    """

    key: str
    path: tuple[str, ...]
    body: Mapping[str, Any]
    route: Route | None = None
    listed: bool | None = None


def to_yaml(document: Mapping[str, Any]) -> str:
    """The response of GET /export as the text of a file."""
    parts = [_HEAD.format(fleet=document["fleet"])]
    parts.append(_dump({"version": document["version"], "fleet": document["fleet"]}))
    parts += [f"\n# {_ABOUT[name]}\n" + _dump({name: document[name]}) for name in SECTIONS]
    return "".join(parts)


def _dump(value: Mapping[str, Any]) -> str:
    text: str = yaml.safe_dump(dict(value), sort_keys=False, allow_unicode=True, width=1_000_000)
    return text


def read(path: Path) -> dict[str, Any]:
    """The document in a file. Raises InvalidExport."""
    try:
        document = read_file(path)
    except UnreadableFile as error:
        raise InvalidExport(str(error)) from error
    if document.get("version") is None:
        raise InvalidExport(
            f"version: is missing: files of ureplicator export begin with version: {VERSION}"
        )
    if document["version"] != VERSION:
        raise InvalidExport(f"version: {document['version']!r} is not supported, only {VERSION}")
    if not isinstance(document.get("fleet"), str):
        raise InvalidExport("fleet: the name of the fleet is missing")
    for name in document:
        if name not in ("version", "fleet", *SECTIONS):
            raise InvalidExport(f"{name}: unknown section; known are {', '.join(SECTIONS)}")
    return document


def items(document: Mapping[str, Any]) -> Iterator[Item]:
    """Entries in the order in which they are imported; what prevents moves comes first.

    Raises InvalidExport.
    """
    if document.get("switches") is not None:
        yield Item("switches", ("switches",), _mapping("switches", document["switches"]))
    for worker, entry in _entries("workers", document.get("workers")):
        yield Item(f"workers.{worker}", ("workers", worker), _mapping(f"workers.{worker}", entry))
    blacklist: set[tuple[Route, str]] = set()
    for name, listed in _entries("blacklist", document.get("blacklist")):
        route = _route(f"blacklist.{name}", name)
        if not isinstance(listed, list) or not all(isinstance(value, str) for value in listed):
            raise InvalidExport(f"blacklist.{name}: expected a list of topics, not {listed!r:.80}")
        for topic in listed:
            blacklist.add((route, topic))
            yield Item(f"blacklist.{name}.{topic}", ("blacklist", topic), {}, route)
    for name, topics in _entries("topics", document.get("topics")):
        route = _route(f"topics.{name}", name)
        for topic, entry in _entries(f"topics.{name}", topics):
            key = f"topics.{name}.{topic}"
            is_listed = (route, topic) in blacklist
            yield Item(key, ("topics", topic), _mapping(key, entry), route, listed=is_listed)


def _route(key: str, name: str) -> Route:
    try:
        return Route.parse(name)
    except ValueError as error:
        raise InvalidExport(f"{key}: not a route, as in west.east") from error


def _entries(key: str, value: object) -> Iterator[tuple[str, object]]:
    for name, entry in _mapping(key, {} if value is None else value).items():
        yield str(name), entry


def _mapping(key: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise InvalidExport(f"{key}: expected a mapping, not {value!r:.80}")
    return value
