"""The file that `ureplicator export` writes and `ureplicator import` reads: YAML for people and for git.

Sorted, one fact a line, without the time it was written at: two exports differ where the fleets do.
What an item must look like is for REST to judge, which names the field; here only the form of the
whole is checked: a misspelt section would silently restore nothing.
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
# What operators asked of fleet {fleet}. `ureplicator import FILE` brings a fleet to it: what is here is
# made or changed, what is not here is left alone. Positions are not here: they are in Kafka, under the
# fleet's name.
"""
_ABOUT = {
    "switches": "Whether lost and new workers move partitions by themselves; whether nothing may.",
    "workers": "Set aside: emptied, and given nothing more. All others come by themselves.",
    "blacklist": "By route: topics that are not copied, whitelisted or not.",
    "topics": """\
By route. initialPartitions: those from this number on appeared later, and begin at their first record.
# hadPosition: had one stored. If one of these has none, it is an error, and does not restart.""",
}


class BadBackup(Exception):
    """The file as a whole is of no use; the text names the key at fault."""


@dataclass(frozen=True, slots=True)
class Item:
    """One thing to restore: what people call it, where REST takes it, and as what.

    `listed`: of a topic, whether the file has it on its route's blacklist.
    """

    key: str
    path: tuple[str, ...]
    body: Mapping[str, Any]
    route: Route | None = None
    listed: bool | None = None


def to_yaml(document: Mapping[str, Any]) -> str:
    """What GET /export answered, as text."""
    parts = [_HEAD.format(fleet=document["fleet"])]
    parts.append(_dump({"version": document["version"], "fleet": document["fleet"]}))
    parts += [f"\n# {_ABOUT[name]}\n" + _dump({name: document[name]}) for name in SECTIONS]
    return "".join(parts)


def _dump(value: Mapping[str, Any]) -> str:
    text: str = yaml.safe_dump(dict(value), sort_keys=False, allow_unicode=True, width=1_000_000)
    return text


def read(path: Path) -> dict[str, Any]:
    """The document in a file. Raises BadBackup."""
    try:
        document = read_file(path)
    except UnreadableFile as error:
        raise BadBackup(str(error)) from error
    if document.get("version") != VERSION:
        raise BadBackup(f"version: is {document.get('version')!r}, this program reads {VERSION}")
    if not isinstance(document.get("fleet"), str):
        raise BadBackup("fleet: the name of the fleet is missing")
    for name in document:
        if name not in ("version", "fleet", *SECTIONS):
            raise BadBackup(f"{name}: is not a known section; known are {', '.join(SECTIONS)}")
    return document


def items(document: Mapping[str, Any]) -> Iterator[Item]:
    """In the order in which they are restored: what holds the fleet still comes first.

    Raises BadBackup.
    """
    if document.get("switches") is not None:
        yield Item("switches", ("switches",), _mapping("switches", document["switches"]))
    for worker, entry in _entries("workers", document.get("workers")):
        yield Item(f"workers.{worker}", ("workers", worker), _mapping(f"workers.{worker}", entry))
    blacklist: set[tuple[Route, str]] = set()
    for name, listed in _entries("blacklist", document.get("blacklist")):
        route = _route(f"blacklist.{name}", name)
        if not isinstance(listed, list) or not all(isinstance(each, str) for each in listed):
            raise BadBackup(f"blacklist.{name}: a list of topics is expected, not {listed!r:.80}")
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
        raise BadBackup(f"{key}: is not a route, as in west.east") from error


def _entries(key: str, value: object) -> Iterator[tuple[str, object]]:
    for name, entry in _mapping(key, {} if value is None else value).items():
        yield str(name), entry


def _mapping(key: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise BadBackup(f"{key}: a mapping is expected, not {value!r:.80}")
    return value
