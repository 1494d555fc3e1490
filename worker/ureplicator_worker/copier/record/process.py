"""One process of a handler, or of queries, as the copier sees it: started, written to, read, and killed.

    starting --ready--> idle <--> working on the oldest task
       | broken, ended, late         | ended, late
       v                             v
      dead                          dead: its tasks have no result

Nothing blocks. The process is *late* when it has sent nothing for the time limit and GRACE_S more while it
has something to do; it sends results as it goes (`chunk_work`), and stops a call that takes too long by
itself (`time_limit`), so a late one never will.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from ureplicator_common.model import HandlerSettings, Transform
from ureplicator_worker.copier.record.frames import (
    Frame,
    FrameReader,
    Head,
    MalformedFrame,
    encode,
)

GRACE_S = 5.0
START_S = 30.0
"""Time for the interpreter, and whatever the handler imports."""
SQL_START_S = 300.0
"""Time for Spark, too, on a machine where all slots start one."""
END_S = 0.1
"""Time for the exit code of a process that has closed its end; the loop waits."""
READ_BYTES = 1 << 20


class HandlerProcess:
    """A socket for the copier's loop. `error`: why it is dead; "" while it is not."""

    def __init__(self, settings: Transform, now_s: float) -> None:
        self.settings = settings
        self.ready = False
        self.error = ""
        self.awaited: set[str] = set()
        """Target topics whose partition count it waits for: that is not its fault."""
        self._moved_s = now_s
        self._end_by_s = 0.0
        self._out: deque[memoryview] = deque()
        self._reader = FrameReader()
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = spawn(theirs, self._module)
        self._socket.setblocking(False)
        self.send(self.config())

    def config(self) -> Head:
        """The first frame."""
        settings = self.settings
        if not isinstance(settings, HandlerSettings):
            return {"udfs": settings.udfs, "memory": settings.memory_bytes}
        return {
            "handler": settings.handler,
            "args": settings.args,
            "deadLetterTopic": settings.dead_letter_topic,
            "timeout": settings.timeout_s,
            "memory": settings.memory_bytes,
        }

    urgent = False

    @property
    def _module(self) -> str:
        if isinstance(self.settings, HandlerSettings):
            return "ureplicator_worker.copier.record.host"
        return "ureplicator_worker.sql"

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def wants_write(self) -> bool:
        return bool(self._out)

    def send(self, head: Head, payload: Sequence[memoryview] = ()) -> None:
        self._out += (memoryview(piece) for piece in encode(head, payload))
        self.write()

    def write(self) -> None:
        try:
            while self._out:
                sent = self._socket.send(self._out[0])
                if sent < len(self._out[0]):
                    self._out[0] = self._out[0][sent:]
                else:
                    self._out.popleft()
        except BlockingIOError:
            return
        except OSError:
            self._out.clear()  # its end is read

    def read(self, now_s: float) -> Iterator[Frame]:
        """The messages that are whole. Its end, and garbage, set `error`."""
        try:
            data = self._socket.recv(READ_BYTES)
        except BlockingIOError:
            return iter(())
        except OSError:
            data = b""
        if not data:
            self.error = self._ended()
            return iter(())
        self._moved_s = now_s
        try:
            return self._reader.feed(data)
        except MalformedFrame as error:
            self.error = f"{self.settings.lane}: its process sent garbage: {error}"
            return iter(())

    def begin(self, now_s: float) -> None:
        """Begin to measure: the process gets something to do, after it had nothing."""
        self._moved_s = now_s

    def check(self, now_s: float, *, busy: bool) -> None:
        """Set `error` if it is late."""
        if self.awaited or self.error:
            self._moved_s = now_s
            return
        start_s = START_S if isinstance(self.settings, HandlerSettings) else SQL_START_S
        limit_s = self.settings.timeout_s + GRACE_S if self.ready else start_s
        if (busy or not self.ready) and now_s - self._moved_s > limit_s:
            did = "return" if self.ready else "start"
            self.error = (
                f"{self.settings.lane} did not {did} in {limit_s:g} s; its process was killed"
            )

    def _ended(self) -> str:
        try:
            code = self._process.wait(timeout=END_S)
        except subprocess.TimeoutExpired:
            return f"{self.settings.lane}: its process closed the connection"
        how = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
        return f"{self.settings.lane}: its process ended ({how})"

    def kill(self) -> None:
        self._socket.close()
        self._process.kill()
        self._process.wait()

    def end(self, now_s: float) -> None:
        """Have it end once it has read everything (`ended`)."""
        self._end_by_s = now_s + self.settings.timeout_s + GRACE_S

    def ended(self, now_s: float) -> bool:
        """True once it has ended, by itself or killed. What it still sends is discarded."""
        if self._process.poll() is not None or now_s > self._end_by_s:
            self.kill()
            return True
        self.write()
        with contextlib.suppress(OSError):
            if not self._out:
                self._socket.shutdown(socket.SHUT_WR)
            while self._socket.recv(READ_BYTES):
                pass
        return False


def spawn(theirs: socket.socket, module: str) -> subprocess.Popen[bytes]:
    """Standard output is the copier's standard error: nothing that the user's code prints is data.

    -P: modules are not looked for in the current folder, but where this process finds them.
    """
    environ: dict[str, Any] = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.Popen(  # noqa: S603
        [sys.executable, "-P", "-m", module, str(theirs.fileno())],
        pass_fds=(theirs.fileno(),),
        stdin=subprocess.DEVNULL,
        stdout=2,
        env=environ,
    )
