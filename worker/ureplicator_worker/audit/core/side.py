"""One side of a comparison: records in order, read ahead only as far as needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

Content = tuple[Any, ...]
"""Key, value, headers, timestamp: what must be equal. The timestamp is None where it is not compared."""

MAX_BYTES = 32 << 20
"""Records read ahead; one chunk may exceed it."""
_DROP_CONSUMED = 16_384


class Chunk(NamedTuple):
    """Consecutive records; `next_offset` is where the next chunk begins, behind markers and holes."""

    offsets: Sequence[int]
    contents: Sequence[Content]
    next_offset: int
    size_bytes: int


class Side:
    """`offset` is the offset of the next record, or where the records will go on. `passed`: records that
    were consumed."""

    def __init__(self, chunks: Iterator[Chunk], first: int) -> None:
        self._chunks = chunks
        self._next = first
        self._offsets: list[int] = []
        self._contents: list[Content] = []
        self._at = 0
        self._bytes = 0
        self.ended = False
        self.read_bytes = 0
        self.passed = 0

    @property
    def ready(self) -> int:
        """Records that are read and not consumed."""
        return len(self._contents) - self._at

    @property
    def offset(self) -> int:
        return self._offsets[self._at] if self.ready else self._next

    def fill(self, count: int) -> int:
        """Read on until `count` records are ready, all are read, or memory is used up."""
        while self.ready < count and not self.ended and (self._bytes < MAX_BYTES or not self.ready):
            chunk = next(self._chunks, None)
            if chunk is None:
                self.ended = True
                break
            self._take(chunk)
        return self.ready

    def _take(self, chunk: Chunk) -> None:
        self._offsets += chunk.offsets
        self._contents += chunk.contents
        self._next = chunk.next_offset
        self._bytes += chunk.size_bytes
        self.read_bytes += chunk.size_bytes

    def contents(self, count: int) -> list[Content]:
        return self._contents[self._at : self._at + count]

    def offsets(self, count: int) -> list[int]:
        return self._offsets[self._at : self._at + count]

    def consume(self, count: int) -> None:
        self._at += count
        self.passed += count
        if self._at >= _DROP_CONSUMED or self._at == len(self._contents):
            left = self.ready / max(1, len(self._contents))
            self._bytes = int(self._bytes * left)
            del self._offsets[: self._at]
            del self._contents[: self._at]
            self._at = 0
