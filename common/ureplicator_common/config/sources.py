"""Three configuration sources merged into one raw tree: the file, the environment, `--set`.

The later source wins, key by key. All three address the same tree:

    controller: {port: 9001}                  in the file
    UREPLICATOR_CONTROLLER__PORT=9001         in the environment
    --set controller.port=9001                on the command line

Routes are a list and are addressed by index (`routes.0.start=latest`). Two sections have keys that
contain dots, librdkafka's and Spark's properties: `--set` takes the rest of the path as one key there
(`clusters.source.bootstrap.servers=...`). The name of an environment variable can hold neither a dot
nor a dash, so `_` replaces both there (`UREPLICATOR_CLUSTERS__SOURCE__BOOTSTRAP_SERVERS`).

Values given as text are read as YAML, as in the file: `9001` is a number and `[a, b]` a list. Only the
form is checked here; faults are collected, so that the caller reports all of them.

pydantic-settings has neither the list indexes, the keys with dots nor the YAML values (docs/adr/0014).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ureplicator_common.config.properties import is_secret
from ureplicator_common.config.section import Fault
from ureplicator_common.config.yaml_file import parse_value, read_file

PREFIX = "UREPLICATOR_"
_OPEN_SECTIONS = (("clusters", "*"), ("worker", "spark"), ("audit", "spark"))
"""Below these, the rest of a path is one key, which may contain dots."""


def merge_sources(
    path: Path, *, environ: Mapping[str, str], overrides: Sequence[str], sections: Sequence[str]
) -> tuple[dict[str, Any], list[Fault]]:
    """The merged tree, and the faults in the form of its sources. Raises UnreadableFile.

    `sections` are the keys of the top level: a variable with the prefix that names none of them
    (`UREPLICATOR_URL`) is not configuration.
    """
    tree = read_file(path)
    faults: list[Fault] = []
    for key_path, text in _from_environment(environ, sections):
        faults += _put_text(tree, key_path, text)
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals or not key:
            faults.append(Fault("--set", f"{override!r} is not of the form key=value"))
        elif is_secret(key):
            faults.append(
                Fault(key, "may not be set with --set: all users of the machine see command lines")
            )
        else:
            faults += _put_text(tree, _split(key.strip()), text)
    return tree, faults


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
    """Number of parts that lead to the open section around `path`; None outside of one."""
    for section in _OPEN_SECTIONS:
        leads_there = all(want in ("*", part) for want, part in zip(section, path, strict=False))
        if leads_there and len(path) > len(section):
            return len(section)
    return None


def _put_text(tree: dict[str, Any], path: Sequence[str], text: str) -> list[Fault]:
    key = ".".join(path)
    value = parse_value(text)
    node: Any = tree
    for part in path[:-1]:
        node = _below(node, part)
        if node is None:
            return [Fault(key, f"{part!r} is not a section or list entry")]
    return _put(node, path[-1], "" if value is None else value, key=key)


def _below(node: Any, part: str) -> Any:
    """The container at `part`, created if a mapping lacks it; None where there can be none."""
    if isinstance(node, list):
        return node[int(part)] if part.isdecimal() and int(part) < len(node) else None
    if not isinstance(node, dict):
        return None
    if node.get(part) is None:
        node[part] = {}
    return node[part]


def _put(node: Any, part: str, value: Any, *, key: str) -> list[Fault]:
    if isinstance(node, list) and part.isdecimal() and int(part) < len(node):
        node[int(part)] = value
    elif isinstance(node, dict):
        node[part] = value
    else:
        return [Fault(key, "is not inside a section")]
    return []
