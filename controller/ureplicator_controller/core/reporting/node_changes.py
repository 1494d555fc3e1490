"""Changes of nodes in words, for the log of what operators did. Pure.

    topics/west.east/orders: state active -> paused

Nodes are JSON objects. A value that is longer than `MAX_VALUE` is cut, and so is a list of changes longer
than `MAX_TEXT`: an import may change a thousand numbers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

MAX_VALUE = 80
MAX_TEXT = 400
REFERENCES = frozenset({"requestId"})
"""Fields that name the request itself."""


def node_change(before: bytes | None, after: bytes | None) -> str:
    """Fields with their values before and after. None: there is no node; "" if nothing but the request
    differs."""
    if after is None:
        return "removed" if before is not None else ""
    old, new = _fields(before), _fields(after)
    changes = "; ".join(_changes(old, new))
    if before is None:
        return _cut(f"created: {changes}" if changes else "created", MAX_TEXT)
    return _cut(changes, MAX_TEXT)


def _changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for name in sorted(old.keys() | new.keys()):
        if name in REFERENCES or old.get(name) == new.get(name):
            continue
        after = _text(new.get(name))
        yield f"{name} {_text(old[name])} -> {after}" if name in old else f"{name} {after}"


def _fields(data: bytes | None) -> Mapping[str, Any]:
    try:
        found = json.loads(data or b"{}")
    except ValueError:
        return {"value": "unreadable"}
    return found if isinstance(found, dict) else {"value": found}


def _text(value: object) -> str:
    return _cut(value if isinstance(value, str) else json.dumps(value), MAX_VALUE)


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[:length]}..."
