"""A TCP proxy that simulates a bad network between one process and one server.

    client --- up ---> [ proxy ] --- up ---> server
           <-- down --           <-- down --

Faults, for each way by itself (`Way.UP`, `Way.DOWN`) or both:

    slow       every byte arrives `delay_s` later, and all connections share a line of this rate,
               which buffers little: who sends faster is held up, as by a window
    stall      nothing passes, without a signal: the connection stays open (a dropped route)
    half-open  a stall of one way only
    cut after  the connection that carries the nth byte from now on is reset right after it
    reset      every connection ends with RST; new ones are accepted
    refuse     as reset, and new ones are refused
    hold       the next request of one kind of Kafka's stays on its way until it is released

`heal` ends all of them, but for a request that is held. Stalled bytes then arrive in order, as retransmitted
packets do: that is how a request arrives long after its sender gave up. The end of a connection (FIN, RST)
is stalled like data.

All proxies of a `ProxyThread` share one thread, which runs an event loop; its methods may be called
from any thread, and return when the fault is active.
"""

import asyncio
import contextlib
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Self

from ureplicator_testkit.kafka.held_requests import HeldRequest, RequestKeys
from ureplicator_testkit.servers.ports import PortClaim, claim_port

CHUNK_BYTES = 16 * 1024
HELD_BYTES = 4 << 20
"""Maximum buffered per way of a connection without a rate."""
QUEUE_S = 0.1
"""Time of a queue: with a rate a connection has as much under way as the line is long, and so much time
more."""
GUST_S = 0.05
"""A busy machine wakes the proxy late; the line carries the rest at once then."""
RECEIVE_BUFFER_BYTES = 1 << 16
"""Bytes of the sockets: the kernel's own would hold megabytes that the proxy has not taken yet."""
LINGER_NOT = struct.pack("ii", 1, 0)
"""SO_LINGER value with which close sends RST instead of FIN."""


class Way(StrEnum):
    """A direction, as the client sees it."""

    UP = "up"
    DOWN = "down"


BOTH = (Way.UP, Way.DOWN)


@dataclass(slots=True)
class _Faults:
    """Faults of one way, for all connections of a proxy. Belongs to the thread of the loop."""

    delay_s: float = 0.0
    rate_bytes_per_s: float = 0.0  # 0: unlimited
    passes: asyncio.Event = field(default_factory=asyncio.Event)
    cut_after_bytes: int | None = None
    carried_bytes: int = 0
    line_free_at_s: float = 0.0
    hold: HeldRequest | None = None

    def __post_init__(self) -> None:
        self.passes.set()

    @property
    def held_bytes(self) -> float:
        """Bytes that one connection may have under way."""
        if not self.rate_bytes_per_s:
            return HELD_BYTES
        return self.rate_bytes_per_s * (self.delay_s + QUEUE_S) + CHUNK_BYTES

    async def transmit(self, size: int) -> None:
        """Wait until the line has carried so many bytes more."""
        if self.rate_bytes_per_s:
            now_s = asyncio.get_running_loop().time()
            began_s = max(now_s - GUST_S, self.line_free_at_s)
            self.line_free_at_s = began_s + size / self.rate_bytes_per_s
            await asyncio.sleep(self.line_free_at_s - now_s)


class _Reset(Exception):
    """A connection must end with RST on both sides."""


_Item = tuple[float, bytes | Exception]  # b"" is the end of the stream


class _Held:
    """Bytes under way in one direction of a connection."""

    def __init__(self, faults: _Faults) -> None:
        self._faults = faults
        self._items: asyncio.Queue[_Item] = asyncio.Queue()
        self._bytes = 0
        self._taken = asyncio.Event()

    async def put(self, item: bytes | Exception) -> None:
        while self._bytes >= self._faults.held_bytes:
            self._taken.clear()
            await self._taken.wait()
        self._bytes += _size(item)
        now_s = asyncio.get_running_loop().time()
        await self._items.put((now_s + self._faults.delay_s, item))

    async def get(self) -> _Item:
        item = await self._items.get()
        self._bytes -= _size(item[1])
        self._taken.set()
        return item


def _size(item: bytes | Exception) -> int:
    return len(item) if isinstance(item, bytes) else 0


class _Connection:
    """A client connection and its connection to the server."""

    def __init__(self, faults: dict[Way, _Faults], seen: Counter[int]) -> None:
        self._weather = faults
        self._seen = seen
        self._writers: list[asyncio.StreamWriter] = []
        self._arriving, self._passing = RequestKeys(), RequestKeys()
        self._held: HeldRequest | None = None
        self._responds: HeldRequest | None = None
        """Released, and passing or passed: what follows it waits for the response."""

    async def run(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, server_port: int
    ) -> None:
        self._writers = [writer]
        try:
            to_server = await asyncio.open_connection("127.0.0.1", server_port, limit=CHUNK_BYTES)
        except OSError:
            self.reset()
            return
        self._writers.append(to_server[1])
        for stream in self._writers:
            _limit_buffer(stream.get_extra_info("socket"))
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(Way.UP, reader, to_server[1]))
                group.create_task(self._pump(Way.DOWN, to_server[0], writer))
        except* (_Reset, OSError):
            self.reset()
        finally:
            for stream in self._writers:
                stream.close()

    async def _pump(
        self, way: Way, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        held = _Held(self._weather[way])
        async with asyncio.TaskGroup() as group:
            group.create_task(self._take(way, reader, held))
            group.create_task(self._give(way, held, writer))

    async def _take(self, way: Way, reader: asyncio.StreamReader, held: _Held) -> None:
        while True:
            item: bytes | Exception
            try:
                item = await reader.read(CHUNK_BYTES)
            except OSError as error:
                item = error
            if way is Way.UP and isinstance(item, bytes):
                self._seen.update(self._arriving.of(item))
            await held.put(item)
            if not item or isinstance(item, Exception):
                return

    async def _give(self, way: Way, held: _Held, writer: asyncio.StreamWriter) -> None:
        faults = self._weather[way]
        now_s = asyncio.get_running_loop().time
        while True:
            due_s, item = await held.get()
            await asyncio.sleep(max(0.0, due_s - now_s()))
            await faults.passes.wait()
            if way is Way.UP and (self._passing.between or not item or isinstance(item, Exception)):
                await self._wait_responded()
            if isinstance(item, Exception):
                raise _Reset from item
            if not item:
                with contextlib.suppress(OSError):
                    writer.write_eof()
                return
            late = self._held_in(item, faults) if way is Way.UP else None
            if late is not None:
                await late.wait_released()
                self._responds = late
            elif way is Way.DOWN and self._held is not None:
                self._held.respond(item)
            await self._pass(item, faults, writer)

    async def _wait_responded(self) -> None:
        if self._responds is not None:
            await self._responds.wait_responded()
            self._responds = None

    def _held_in(self, data: bytes, faults: _Faults) -> HeldRequest | None:
        keys = list(self._passing.of(data))
        if faults.hold is None or faults.hold.api_key not in keys:
            return None
        self._held, faults.hold = faults.hold, None
        return self._held

    async def _pass(self, data: bytes, faults: _Faults, writer: asyncio.StreamWriter) -> None:
        await faults.transmit(len(data))
        left = faults.cut_after_bytes
        is_cut = left is not None and left <= len(data)
        if left is not None:
            data = data[:left]
            faults.cut_after_bytes = None if is_cut else left - len(data)
        faults.carried_bytes += len(data)
        writer.write(data)
        await writer.drain()
        if is_cut:
            raise _Reset

    def reset(self) -> None:
        for writer in self._writers:
            end: socket.socket | None = writer.get_extra_info("socket")
            if end is not None and not writer.transport.is_closing():
                with contextlib.suppress(OSError):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NOT)
            writer.transport.abort()


def _limit_buffer(end: socket.socket) -> None:
    end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)


class Proxy:
    """One port that forwards to another one, under the faults set on it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, server_port: int) -> None:
        self._loop = loop
        self._server_port = server_port
        self._claim: PortClaim = claim_port()
        self._weather = {way: _Faults() for way in BOTH}
        self._seen: Counter[int] = Counter()
        self._connections: dict[_Connection, asyncio.Task[None]] = {}
        self._listener: asyncio.Server | None = None
        self.port = self._claim.port
        self._do(self._listen)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def connections(self) -> int:
        """Number of open connections."""
        return len(self._connections)

    def carried_bytes(self, way: Way) -> int:
        """All bytes passed this way so far."""
        return self._weather[way].carried_bytes

    def requests(self, api_key: int) -> int:
        """Number of requests of Kafka's with this key that began to arrive, whether they pass or not."""
        return self._seen[api_key]

    # --- faults ------------------------------------------------------------------------------

    def slow(self, *ways: Way, delay_s: float = 0.0, rate_bytes_per_s: float = 0.0) -> None:
        def change() -> None:
            for way in ways or BOTH:
                self._weather[way].delay_s = delay_s
                self._weather[way].rate_bytes_per_s = rate_bytes_per_s

        self._do(change)

    def stall(self, *ways: Way) -> None:
        """One way only: half-open."""

        def change() -> None:
            for way in ways or BOTH:
                self._weather[way].passes.clear()

        self._do(change)

    def cut_after(self, count_bytes: int, way: Way) -> None:
        """Cut a connection once: later connections are not cut."""
        assert count_bytes > 0

        def change() -> None:
            self._weather[way].cut_after_bytes = count_bytes

        self._do(change)

    def hold(self, api_key: int) -> HeldRequest:
        """Hold the next request with this key, of any connection."""
        held = HeldRequest(api_key, self._loop)

        def change() -> None:
            self._weather[Way.UP].hold = held

        self._do(change)
        return held

    def reset(self) -> None:
        self._do(self._reset_all)

    def refuse(self) -> None:
        def change() -> None:
            self._deafen()
            self._reset_all()

        self._do(change)

    def heal(self) -> None:
        async def change() -> None:
            for faults in self._weather.values():
                faults.delay_s = faults.rate_bytes_per_s = 0.0
                faults.cut_after_bytes = None
                faults.hold = None
                faults.passes.set()
            if self._listener is None:
                await self._listen()

        self._do(change)

    # --- start and stop --------------------------------------------------------------------------------

    def close(self) -> None:
        async def end() -> None:
            self._deafen()
            self._reset_all()
            tasks = list(self._connections.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        self._do(end)
        self._claim.release()

    async def _listen(self) -> None:
        self._listener = await asyncio.start_server(
            self._accept, "127.0.0.1", self.port, limit=CHUNK_BYTES
        )

    def _deafen(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = _Connection(self._weather, self._seen)
        task = asyncio.current_task()
        assert task is not None
        self._connections[connection] = task
        try:
            await connection.run(reader, writer, self._server_port)
        finally:
            del self._connections[connection]

    def _reset_all(self) -> None:
        for connection, task in list(self._connections.items()):
            connection.reset()
            task.cancel()  # it may hold stalled bytes

    def _do(self, change: Callable[[], object]) -> None:
        async def run() -> None:
            result = change()
            if asyncio.iscoroutine(result):
                await result

        asyncio.run_coroutine_threadsafe(run(), self._loop).result(10)


class ProxyThread:
    """The thread of all proxies."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxies", daemon=True)
        self._thread.start()
        self._proxies: list[Proxy] = []

    def proxy(self, server_port: int) -> Proxy:
        """A proxy of this port; the server need not run yet."""
        proxy = Proxy(self._loop, server_port)
        self._proxies.append(proxy)
        return proxy

    def heal(self) -> None:
        for proxy in self._proxies:
            proxy.heal()

    def close(self) -> None:
        for proxy in self._proxies:
            proxy.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
