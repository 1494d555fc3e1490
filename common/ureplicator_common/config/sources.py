"""One raw tree out of three layers: the file, then the environment, then `--set`.

The later layer wins, key by key. Every layer speaks of the same tree:

    controller: {port: 9001}                  in the file
    UREPLICATOR_CONTROLLER__PORT=9001         in the environment
    --set controller.port=9001                on the command line

Two places of the tree have keys with dots in them, librdkafka's and Spark's. `--set` takes what is
left of the path as one key there (`clusters.source.bootstrap.servers=...`); an environment variable
cannot hold a dot or a dash, so there `_` stands for it
(`UREPLICATOR_CLUSTERS__SOURCE__BOOTSTRAP_SERVERS`). Routes are a list and are reached by their
number from 0 (`routes.0.start=latest`).

Values given as text are read as YAML, so that `9001` is a number and `[a, b]` a list, as in the
file. Nothing is judged here but the form; faults are collected, and the caller tells all of them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

PREFIX = "UREPLICATOR_"
_OPEN_SECTIONS = (("clusters", "*"), ("worker", "spark"))
"""Below these, the rest of a path is one key: it may contain dots."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Something wrong, and the key it is about ("" for the file as a whole)."""

    key: str
    message: str

    def __str__(self) -> str:
        return f"{self.key}: {self.message}" if self.key else self.message


class Unreadable(Exception):
    """There is no tree at all: the file is missing, or is no YAML mapping."""


class _StrictLoader(yaml.SafeLoader):
    """YAML lets a later key silently replace an earlier one; in a configuration that is wrong."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[object] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable):
                if key in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key {key!r} is there twice", key_node.start_mark
                    )
                seen.add(key)
        return super().construct_mapping(node, deep=deep)


def merged_tree(
    path: Path, *, environ: Mapping[str, str], overrides: Sequence[str], sections: Sequence[str]
) -> tuple[dict[str, Any], list[Fault]]:
    """The tree of all three layers and what was wrong with their form. Raises Unreadable.

    `sections` are the keys of the top level: a variable with our prefix that names none of them
    (`UREPLICATOR_URL`) is not meant for the configuration.
    """
    tree = read_file(path)
    faults: list[Fault] = []
    for key_path, text in _from_environment(environ, sections):
        faults += _put_text(tree, key_path, text)
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals or not key:
            faults.append(Fault("--set", f"{override!r} is not of the form key=value"))
        else:
            faults += _put_text(tree, _split(key.strip()), text)
    return tree, faults


def read_file(path: Path) -> dict[str, Any]:
    """The YAML mapping in a file, {} for an empty one. Raises Unreadable."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise Unreadable(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise Unreadable(f"{path}: is not UTF-8 text: {error.reason}") from error
    try:
        tree = yaml.load(text, _StrictLoader)  # noqa: S506 - a SafeLoader
    except yaml.MarkedYAMLError as error:
        raise Unreadable(f"{path}{_place(error)}: {error.problem or 'not YAML'}") from error
    except yaml.YAMLError as error:
        raise Unreadable(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise Unreadable(f"{path}: a mapping of sections is expected, not a {type(tree).__name__}")
    return tree


def _place(error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark
    return f":{mark.line + 1}:{mark.column + 1}" if mark else ""


def _from_environment(
    environ: Mapping[str, str], sections: Sequence[str]
) -> Iterator[tuple[list[str], str]]:
    for name in sorted(environ):
        if not name.startswith(PREFIX):
            continue
        path = [part.lower() for part in name.removeprefix(PREFIX).split("__")]
        if path[0] not in sections:
            continue
        if path[0] == "clusters":
            path[1:2] = [part.replace("_", "-") for part in path[1:2]]
        keep = _open_depth(path)
        if keep is not None:
            path = [*path[:keep], ".".join(path[keep:]).replace("_", ".")]
        yield path, environ[name]


def _split(key: str) -> list[str]:
    path = key.split(".")
    keep = _open_depth(path)
    return path if keep is None else [*path[:keep], ".".join(path[keep:])]


def _open_depth(path: Sequence[str]) -> int | None:
    """How many parts lead to an open section that `path` goes below, None if it does not."""
    for section in _OPEN_SECTIONS:
        leads = all(want in ("*", part) for want, part in zip(section, path, strict=False))
        if leads and len(path) > len(section):
            return len(section)
    return None


def _put_text(tree: dict[str, Any], path: Sequence[str], text: str) -> list[Fault]:
    key = ".".join(path)
    try:
        value = yaml.load(text, _StrictLoader)  # noqa: S506 - a SafeLoader
    except yaml.YAMLError:
        value = text
    place: Any = tree
    for part in path[:-1]:
        place = _below(place, part)
        if place is None:
            return [Fault(key, f"there is nothing at {part!r} to set this in")]
    return _put(place, path[-1], "" if value is None else value, key=key)


def _below(place: Any, part: str) -> Any:
    """The container under `part`, made if a mapping lacks it; None where there can be none."""
    if isinstance(place, list):
        return place[int(part)] if part.isdecimal() and int(part) < len(place) else None
    if not isinstance(place, dict):
        return None
    if place.get(part) is None:
        place[part] = {}
    return place[part]


def _put(place: Any, part: str, value: Any, *, key: str) -> list[Fault]:
    if isinstance(place, list) and part.isdecimal() and int(part) < len(place):
        place[int(part)] = value
    elif isinstance(place, dict):
        place[part] = value
    else:
        return [Fault(key, "is not inside a section")]
    return []
