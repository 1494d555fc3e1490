"""The memory of a route: what it fetched and the target has not acknowledged yet, and what is on its way.

    reserved   for responses that were requested: their largest size, until their real size is known
    leased     buffers of responses. A lease counts its holders: each batch that still lies in it holds it
    adopted    bytes that were built (rebuilt, merged or split batches) or copied out of a buffer

The total is bounded; while it is used up nothing is fetched, so a slow target pushes back on the source.
Each route with partitions has an equal share of a copier's memory, so a slow target of one route takes
nothing from another.

Buffers are kept for the next response, since zeroing fresh memory costs as much as the copy itself.
Their sizes are classes, eight to a doubling, so that a buffer is at most an eighth larger than needed.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Set

MIN_KEPT_BYTES = 1 << 16
"""Smaller buffers have their exact size, and are not kept."""
KEPT_PER_SIZE = 4

Bytes = bytearray | bytes


def class_bytes(size: int) -> int:
    """Size of the buffer for so many bytes.

    >>> class_bytes(100), class_bytes(1 << 23), class_bytes((1 << 23) + 50)
    (100, 8388608, 9437184)
    """
    if size < MIN_KEPT_BYTES:
        return size
    step = 1 << (size.bit_length() - 4)
    return -(-size // step) * step


class Lease:
    """Memory in use. `view` is the part that was requested. `since_s`: monotonic time at which the response
    began to arrive that the bytes are of, or were made from."""

    __slots__ = ("_buffer", "_holders", "_pool", "_reusable", "adopted", "since_s", "view")

    def __init__(
        self, pool: BufferPool, buffer: Bytes, size: int, *, adopted: bool, since_s: float
    ) -> None:
        self._pool = pool
        self._buffer = buffer
        self._holders = 1
        self._reusable = not adopted and len(buffer) >= MIN_KEPT_BYTES
        self.adopted = adopted
        self.since_s = since_s
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
            self._pool.take_back(self._buffer, again=self._reusable)

    def abandon(self) -> None:
        """Release, though a socket may still be sending from the buffer: it is never reused."""
        self._reusable = False
        self.release()

    def adopt(self, data: Bytes) -> Lease:
        """A lease of bytes that were made from these."""
        return self._pool.adopt(data, since_s=self.since_s)


class BufferPool:
    """`limit_bytes` may change: what is over it is used up, and not leased again."""

    def __init__(self, *, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._used_bytes = 0
        self._reserved_bytes = 0
        self._kept: dict[int, list[Bytes]] = {}
        self._kept_bytes = 0

    @property
    def used_bytes(self) -> int:
        """Bytes leased and adopted."""
        return self._used_bytes

    @property
    def reserved_bytes(self) -> int:
        return self._reserved_bytes

    @property
    def limit_bytes(self) -> int:
        return self._limit_bytes

    @limit_bytes.setter
    def limit_bytes(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._free_kept(0)

    @property
    def free_bytes(self) -> int:
        return max(0, self._limit_bytes - self._used_bytes - self._reserved_bytes)

    def has_room(self, size: int) -> bool:
        """True if a response of this size may be requested. One is always allowed, however large."""
        nothing = self._used_bytes == self._reserved_bytes == 0
        return nothing or size <= self.free_bytes

    def reserve(self, size: int) -> None:
        """Reserve room for a response, until `unreserve`: its size is known, or it never comes."""
        self._free_kept(size)
        self._reserved_bytes += size

    def unreserve(self, size: int) -> None:
        self._reserved_bytes -= size
        assert self._reserved_bytes >= 0, "returned more than was reserved"

    def lease(self, size: int) -> Lease:
        """A buffer of at least the size, never refused: what a broker sends must be read. Check `has_room`
        before the request."""
        rounded = class_bytes(size)
        kept = self._kept.get(rounded)
        if kept:
            buffer = kept.pop()
            self._kept_bytes -= rounded
        else:
            self._free_kept(rounded)
            buffer = bytearray(rounded)
        self._used_bytes += rounded
        return Lease(self, buffer, size, adopted=False, since_s=time.monotonic())

    def adopt(self, data: Bytes, *, since_s: float | None = None) -> Lease:
        """Count bytes that were made elsewhere; they are there since now, unless it is given."""
        self._free_kept(len(data))
        self._used_bytes += len(data)
        since_s = time.monotonic() if since_s is None else since_s
        return Lease(self, data, len(data), adopted=True, since_s=since_s)

    def _free_kept(self, size: int) -> None:
        """Free kept buffers, as far as the limit needs it; large ones first."""
        if self._fits(size):
            return
        for other in sorted(self._kept, reverse=True):
            while self._kept[other] and not self._fits(size):
                self._kept[other].pop()
                self._kept_bytes -= other

    def _fits(self, size: int) -> bool:
        used_bytes = self._used_bytes + self._reserved_bytes
        return used_bytes + self._kept_bytes + size <= self._limit_bytes

    def take_back(self, buffer: Bytes, *, again: bool) -> None:
        size = len(buffer)
        self._used_bytes -= size
        if not again or not self._fits(size):
            return
        kept = self._kept.setdefault(size, [])
        if len(kept) < KEPT_PER_SIZE:
            kept.append(buffer)
            self._kept_bytes += size


class RouteShares:
    """The memory of a copier in equal parts, one for each route that has partitions."""

    def __init__(self, *, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._pools: dict[Hashable, BufferPool] = {}
        self._busy: Set[Hashable] = frozenset()

    def pool(self, route: Hashable) -> BufferPool:
        """The pool of a new route; it has no share before it is busy."""
        assert route not in self._pools
        pool = self._pools[route] = BufferPool(limit_bytes=0)
        return pool

    def share(self, busy: Set[Hashable]) -> None:
        """Divide the memory among these routes."""
        if busy == self._busy:
            return
        self._busy = frozenset(busy)
        for route, pool in self._pools.items():
            pool.limit_bytes = self._limit_bytes // len(busy) if route in busy else 0
