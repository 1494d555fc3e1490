"""The lifeline's messages on the wire: one JSON object a line, field names in camelCase.

The types that the messages declare say what their fields may hold. They are checked, since any process may
connect; unknown fields are ignored. `Partition`, `Route` and `Limited` are written as text.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, NewType, get_args, get_origin, get_type_hints

from ureplicator_common.model import Partition, Route, RouteSettings, camel
from ureplicator_worker.lifeline.messages import Grant, Message, ProofResponse

Read = Callable[[Any], Any]
"""From the value in JSON to that of the field. Raises LookupError, TypeError, AttributeError, ValueError."""

KINDS: Mapping[str, Any] = {kind.__name__: kind for kind in get_args(Message)}


def encode(message: Message) -> bytes:
    """Message -> one line, newline included."""
    fields = _proof(message) if isinstance(message, ProofResponse) else _plain(message)
    body = {"type": type(message).__name__, **fields}
    return json.dumps(body, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes) -> Message:
    """One line -> message. Raises ValueError for anything else."""
    try:
        raw = json.loads(line)
        kind = KINDS[raw["type"]]
        if kind is ProofResponse:
            _share_settings(raw)
        message: Message = reader(kind)(raw)
        return message
    except (LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"not a lifeline message: {line[:200]!r}") from error


def _plain(value: Any) -> Any:
    if isinstance(value, (str, int, float)):
        return value
    if isinstance(value, (Partition, Route)):
        return str(value)
    kind: Any = type(value)
    fields = _fields(kind)
    if fields is not None:
        return {name: _plain(getattr(value, field)) for field, name in fields}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value]


@functools.cache
def _fields(kind: Any) -> tuple[tuple[str, str], ...] | None:
    """Fields of a class with their names in camelCase; None for a plain tuple or a mapping."""
    for attribute in ("__dataclass_fields__", "_fields"):
        if hasattr(kind, attribute):
            return tuple((field, camel(field)) for field in getattr(kind, attribute))
    return None


def _proof(response: ProofResponse) -> dict[str, Any]:
    """The settings of a route once, and their place in each grant: they may name a thousand topics."""
    distinct = {id(grant.settings): grant.settings for grant in response.granted.values()}
    places = {identity: place for place, identity in enumerate(distinct)}
    granted: dict[str, Any] = {}
    for partition, grant in response.granted.items():
        granted[str(partition)] = {
            name: _plain(getattr(grant, field))
            for field, name in _fields(Grant) or ()
            if field != "settings"
        } | {"settings": places[id(grant.settings)]}
    return {
        "requestId": response.request_id,
        "settings": [_plain(settings) for settings in distinct.values()],
        "granted": granted,
        "refused": _plain(response.refused),
    }


def _share_settings(raw: Any) -> None:
    """Put the settings in each grant, decoded once."""
    settings = [reader(RouteSettings)(item) for item in raw["settings"]]
    for grant in raw["granted"].values():
        grant["settings"] = settings[grant["settings"]]


@functools.cache
def reader(kind: Any) -> Read:
    """Reader of what `encode` writes for a value of this type."""
    if isinstance(kind, NewType):
        return reader(kind.__supertype__)
    if get_origin(kind) is tuple:
        item = reader(get_args(kind)[0])
        return lambda raw: tuple([item(part) for part in _exactly(list, raw)])
    if get_origin(kind) is Mapping:
        of_key, of_value = get_args(kind)
        key, value = int if of_key is int else reader(of_key), reader(of_value)
        return lambda raw: {key(text): value(part) for text, part in raw.items()}
    read: Read = functools.partial(_exactly, kind)
    if issubclass(kind, StrEnum):
        read = kind
    elif hasattr(kind, "parse"):
        read = kind.parse
    elif _fields(kind) is not None:
        read = _record(kind)
    return read


def _record(kind: Any) -> Read:
    hints = get_type_hints(kind)
    fields = [(name, reader(hints[field])) for field, name in _fields(kind) or ()]

    def read(raw: Any) -> Any:
        """A value that is decoded already stays."""
        return raw if isinstance(raw, kind) else kind(*[value(raw[name]) for name, value in fields])

    return read


def _exactly(kind: type, raw: Any) -> Any:
    """No bool for an int; an int may stand for a float."""
    if type(raw) is not kind and (kind is not float or type(raw) is not int):
        raise TypeError(f"expected {kind.__name__}")
    return raw
