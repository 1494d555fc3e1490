"""Contents of nodes as bytes: JSON, compressed where it is large, and validated when it is read."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from ureplicator_common.model import Content, camel

COMPRESS_ABOVE_BYTES = 8 * 1024
LIMIT_BYTES = 640 * 1024
"""Bytes of a node: room for the rest of a transaction, see `coordination.TRANSACTION_LIMIT_BYTES`."""

T = TypeVar("T")


class UnreadableContent(ValueError):
    """The content of a node is garbage, incomplete, or in the names of another version."""


def pack(text: bytes) -> bytes:
    """JSON text -> node content, compressed if it is large.

    Raises ValueError above the limit of a node.
    """
    data = zlib.compress(text, 6) if len(text) > COMPRESS_ABOVE_BYTES else text
    if len(data) > LIMIT_BYTES:
        raise ValueError(f"node content of {len(data)} bytes is above {LIMIT_BYTES}")
    return data


def unpack(data: bytes) -> bytes:
    """Node content -> JSON text. Raises UnreadableContent.

    JSON text never begins with zlib's first byte (0x78), so no marker is needed.
    """
    if data[:1] != b"\x78":
        return data
    try:
        return zlib.decompress(data)
    except zlib.error as error:
        raise UnreadableContent(f"cannot be decompressed: {error}") from error


def encode(value: object) -> bytes:
    """JSON-able value -> node content. Raises ValueError above the limit of a node."""
    return pack(json.dumps(value, sort_keys=True, separators=(",", ":")).encode())


def decode(data: bytes) -> Any:
    """Node content -> JSON-able value; an empty node is {}. Raises UnreadableContent."""
    try:
        return json.loads(unpack(data) or b"{}")
    except ValueError as error:
        raise UnreadableContent(str(error)) from error


class Codec(Generic[T]):
    """Node contents of one type.

    `omit_defaults`: fields that have their default value are not written. `empty`: the JSON text that
    an empty node stands for. `checked`: raises UnreadableContent for what the type alone would accept.
    """

    def __init__(
        self,
        content: TypeAdapter[T],
        *,
        omit_defaults: bool = False,
        empty: bytes = b"{}",
        checked: Callable[[bytes], None] | None = None,
    ) -> None:
        self._content = content
        self._omit_defaults = omit_defaults
        self._empty = empty
        self._checked = checked

    def encode(self, value: T) -> bytes:
        """Raises ValueError above the limit of a node."""
        text = self._content.dump_json(value, by_alias=True, exclude_defaults=self._omit_defaults)
        return pack(text)

    def decode(self, data: bytes) -> T:
        """Raises UnreadableContent."""
        if self._checked is not None:
            self._checked(data)
        try:
            return self._content.validate_json(unpack(data) or self._empty)
        except ValidationError as error:
            raise UnreadableContent(_first_of(error)) from error


def _first_of(error: ValidationError) -> str:
    """`3.ownerEpoch: Field required`."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    return f"{where}: {first['msg']}" if where else first["msg"]


def field_names(kind: type[Content], *, required: Sequence[str] = ()) -> Callable[[bytes], None]:
    """A check of contents whose fields nearly all have defaults: that no name is in snake_case. Such
    fields would be ignored, and defaults read instead."""
    fields = kind.__dataclass_fields__  # type: ignore[attr-defined]
    snake_case = frozenset(name for name in fields if camel(name) != name)

    def check(data: bytes) -> None:
        raw = decode(data)
        names = raw.keys() if isinstance(raw, dict) else frozenset()
        if found := snake_case & names:
            raise UnreadableContent(f"{min(found)} is not a name in camelCase")
        if missing := [name for name in required if name not in names]:
            raise UnreadableContent(f"{missing[0]}: Field required")

    return check
