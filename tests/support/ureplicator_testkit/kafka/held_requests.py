"""A request of the Kafka protocol that is held on its way to a broker, and arrives when it is released.

What its sender sends behind it on the same connection, the end of the connection included, waits for the
response, too; other connections go on. So the sender gives up, goes on elsewhere, and the request arrives
much later: as if the network had kept it.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Iterator

HEAD = struct.Struct(">ih")
"""Head of a request: its size, and its API key."""
RESPONSE_S = 5.0


class HeldRequest:
    """`taken`: it is under way, and held. `response`: what the broker sent back for it, with the size."""

    def __init__(self, api_key: int, loop: asyncio.AbstractEventLoop) -> None:
        self.api_key = api_key
        self.taken = False
        self.response = b""
        self._loop = loop
        self._released = asyncio.Event()
        self._responded = asyncio.Event()

    def release(self) -> None:
        """Release what is held, from any thread."""
        self._loop.call_soon_threadsafe(self._released.set)

    async def wait_released(self) -> None:
        self.taken = True
        await self._released.wait()

    def respond(self, portion: bytes) -> None:
        self.response += portion
        self._responded.set()

    async def wait_responded(self) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._responded.wait(), RESPONSE_S)


class RequestKeys:
    """API keys of the requests that begin in the portions of one connection."""

    def __init__(self) -> None:
        self._head = b""
        self._left = 0

    @property
    def between(self) -> bool:
        """The last request that began is complete."""
        return not self._left and not self._head

    def of(self, portion: bytes) -> Iterator[int]:
        while portion:
            skipped = min(self._left, len(portion))
            self._left -= skipped
            taken = skipped + HEAD.size - len(self._head)
            self._head += portion[skipped:taken]
            portion = portion[taken:]
            if len(self._head) == HEAD.size:
                size, key = HEAD.unpack(self._head)
                self._left, self._head = max(0, size - 2), b""
                yield key
