"""YAML files and values, read strictly: a duplicate key is an error, a document is a mapping."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

_TOO_DEEP = "lists or mappings are nested too deep"


class UnreadableFile(Exception):
    """The file is missing, or is not a YAML mapping."""


class _StrictLoader(yaml.SafeLoader):
    """Refuses duplicate keys, of which YAML silently keeps the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[object] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable):
                if key in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"duplicate key {key!r}", key_node.start_mark
                    )
                seen.add(key)
        return super().construct_mapping(node, deep=deep)


def read_file(path: Path) -> dict[str, Any]:
    """The YAML mapping in a file, {} for an empty one. Raises UnreadableFile."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UnreadableFile(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UnreadableFile(f"{path}: is not UTF-8 text: {error.reason}") from error
    try:
        tree = yaml.load(text, _StrictLoader)  # noqa: S506 - a SafeLoader
    except yaml.MarkedYAMLError as error:
        raise UnreadableFile(f"{path}{_position(error)}: {error.problem or 'not YAML'}") from error
    except yaml.YAMLError as error:
        raise UnreadableFile(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    except RecursionError as error:
        raise UnreadableFile(f"{path}: {_TOO_DEEP}") from error
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise UnreadableFile(f"{path}: expected a mapping of sections, not a {type(tree).__name__}")
    return tree


def parse_value(text: str) -> Any:
    """The value that the text has in YAML; the text itself if it is not YAML."""
    try:
        return yaml.load(text, _StrictLoader)  # noqa: S506 - a SafeLoader
    except (yaml.YAMLError, RecursionError):
        return text


def _position(error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark
    return f":{mark.line + 1}:{mark.column + 1}" if mark else ""
