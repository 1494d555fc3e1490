"""Reader of the flexible versions of responses (KIP-482), for decoders that are written by hand."""

from __future__ import annotations

import struct

CORRELATION_ID_BYTES = 4
"""Bytes before the rest of each response."""
MAX_SHIFT = 28
"""Five bytes hold 32 bits."""
_SHORT, _INT = struct.Struct(">h"), struct.Struct(">i")


class Reader:
    """Values of a response in their order, from `at` on. Reads raise IndexError and struct.error at its end,
    UnicodeDecodeError for text that is none."""

    __slots__ = ("at", "data")

    def __init__(self, data: bytes, *, at: int) -> None:
        self.data, self.at = data, at

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > MAX_SHIFT:
                raise IndexError("a varint of more than five bytes")

    def compact(self) -> bytes:
        """Compact, of text too; null is empty."""
        size = self.varint() - 1
        if size <= 0:
            return b""
        self.at += size
        found = self.data[self.at - size : self.at]
        if len(found) != size:
            raise IndexError("the response is cut off")
        return found

    def text(self) -> str:
        return self.compact().decode()

    def short(self) -> int:
        self.at += 2
        return int(_SHORT.unpack_from(self.data, self.at - 2)[0])

    def integer(self) -> int:
        self.at += 4
        return int(_INT.unpack_from(self.data, self.at - 4)[0])

    def count(self) -> int:
        """Length of a compact array; null is empty."""
        return max(0, self.varint() - 1)

    def skip_tags(self) -> None:
        for _ in range(self.varint()):
            self.varint()
            self.at += self.varint()
