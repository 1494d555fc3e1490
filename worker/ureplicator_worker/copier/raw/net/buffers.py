"""The memory that holds responses of the source until the target has acknowledged every batch in them.

A lease counts its holders: each batch that still lies in it holds it. The total is bounded; while it is
used up nothing is fetched, so a slow target pushes back on the source. Buffers of the usual sizes are
kept for the next response, since zeroing fresh memory costs as much as the copy itself.
"""

from __future__ import annotations

MIN_BUFFER_BYTES = 1 << 16
KEPT_PER_SIZE = 4


class Lease:
    """A buffer in use. `view` is the part that was requested."""

    __slots__ = ("_abandoned", "_buffer", "_holders", "_pool", "view")

    def __init__(self, pool: BufferPool, buffer: bytearray, size: int) -> None:
        self._pool = pool
        self._buffer = buffer
        self._holders = 1
        self._abandoned = False
        self.view = memoryview(buffer)[:size]

    @property
    def size_bytes(self) -> int:
        return len(self._buffer)

    def hold(self) -> None:
        self._holders += 1

    def release(self) -> None:
        """The last holder gives the buffer back; it must not be read afterwards."""
        self._holders -= 1
        assert self._holders >= 0, "released more often than held"
        if self._holders == 0:
            self._pool.take_back(self._buffer, again=not self._abandoned)

    def abandon(self) -> None:
        """Release, though a socket may still be sending from the buffer: it is never reused."""
        self._abandoned = True
        self.release()


class BufferPool:
    def __init__(self, *, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._used_bytes = 0
        self._kept: dict[int, list[bytearray]] = {}
        self._kept_bytes = 0

    @property
    def used_bytes(self) -> int:
        return self._used_bytes

    @property
    def limit_bytes(self) -> int:
        return self._limit_bytes

    def has_room(self, size: int) -> bool:
        """True if a response of this size may be requested. One is always allowed, however large."""
        return self._used_bytes == 0 or self._used_bytes + size <= self._limit_bytes

    def lease(self, size: int) -> Lease:
        """Never refuses: what a broker sends must be read. Check `has_room` before the request."""
        rounded = MIN_BUFFER_BYTES
        while rounded < size:
            rounded *= 2
        kept = self._kept.get(rounded)
        if kept:
            buffer = kept.pop()
            self._kept_bytes -= rounded
        else:
            self._make_room(rounded)
            buffer = bytearray(rounded)
        self._used_bytes += rounded
        return Lease(self, buffer, size)

    def _make_room(self, size: int) -> None:
        """Free kept buffers of other sizes, as far as the limit needs it; large ones first."""
        for other in sorted(self._kept, reverse=True):
            while self._kept[other] and not self._fits(size):
                self._kept[other].pop()
                self._kept_bytes -= other

    def _fits(self, size: int) -> bool:
        return self._used_bytes + self._kept_bytes + size <= self._limit_bytes

    def take_back(self, buffer: bytearray, *, again: bool) -> None:
        size = len(buffer)
        self._used_bytes -= size
        kept = self._kept.setdefault(size, [])
        if again and len(kept) < KEPT_PER_SIZE and self._fits(size):
            kept.append(buffer)
            self._kept_bytes += size
