"""Requests that are encoded by hand, in the flexible versions of the protocol (KIP-482)."""

from __future__ import annotations

import struct

_NO_TAGS = b"\0"
_SHORT, _INT = struct.Struct(">h"), struct.Struct(">i")


class Request:
    """A request whose body is encoded already. `flexible`: its header ends with tags."""

    __slots__ = ("_body", "_flexible", "_header", "api_key", "version")

    def __init__(self, api_key: int, version: int, body: bytes, *, flexible: bool = True) -> None:
        self.api_key, self.version = api_key, version
        self._body, self._flexible, self._header = body, flexible, b""

    def with_header(self, *, correlation_id: int, client_id: str) -> None:
        start = struct.pack(">hhi", self.api_key, self.version, correlation_id)
        self._header = start + plain(client_id) + _NO_TAGS * self._flexible

    def encode(self, *, framed: bool, header: bool) -> bytes:
        assert framed
        assert header
        return _INT.pack(len(self._header) + len(self._body)) + self._header + self._body


def varint(value: int) -> bytes:
    """A value below 2^31 as bytes. Hot path: nearly all are below 128."""
    if value < 0x80:
        return bytes((value,))
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def compact(text: str) -> bytes:
    """A string of the flexible versions."""
    encoded = text.encode()
    return varint(len(encoded) + 1) + encoded


def plain(text: str) -> bytes:
    """A string of the older versions, and of every header."""
    encoded = text.encode()
    return _SHORT.pack(len(encoded)) + encoded
