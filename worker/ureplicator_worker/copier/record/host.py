"""The process of a handler: reads chunks from the copier, and sends what becomes of their records.

    python -m ureplicator_worker.copier.record.host <descriptor of the socket>

The first frame names the handler. The process ends with its socket, and with the copier (`end_with_parent`).
Memory is limited before the user's code is imported. Standard output is the copier's standard error: the
user's code may print.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

from ureplicator_worker.copier.record.channel import Channel, CopierGone, Inbox
from ureplicator_worker.copier.record.encoding import Ready
from ureplicator_worker.copier.record.frames import Head
from ureplicator_worker.copier.record.handler_calls import (
    ChunkFailed,
    ChunkWork,
    outputs_of,
)
from ureplicator_worker.copier.record.time_limit import TimeLimit
from ureplicator_worker.copier.record.user_errors import log_stack, reason_of
from ureplicator_worker.handlers import Handler

PR_SET_PDEATHSIG = 1


class Host:
    """`limit_memory` is called before the handler is made. `limit`: the time limit of each call; by default
    that of the settings."""

    def __init__(
        self,
        channel: Channel,
        *,
        limit_memory: Callable[[int], None],
        limit: TimeLimit | None = None,
    ) -> None:
        self._channel = channel
        self._limit_memory = limit_memory
        self._limit = limit
        self._inbox = Inbox(channel)
        self._handler: Handler
        self._work: ChunkWork

    def begin(self) -> bool:
        """Make the handler of the first frame; False if that fails."""
        config, _ = self._channel.receive()
        self._limit_memory(config["memory"])
        try:
            self._handler = make(config["handler"], config["args"])
        except BaseException as error:
            log_stack(f"handler {config['handler']} cannot be made", error)
            reason = f"handler {config['handler']} cannot be made: {reason_of(error)}"
            self._channel.send({"broken": reason})
            return False
        self._work = ChunkWork(
            self._handler,
            dead_letter_topic=config["deadLetterTopic"],
            limit=self._limit or TimeLimit(config["timeout"], outputs=outputs_of),
            partition_count=self._inbox.partition_count,
            report=self._report,
        )
        self._channel.send({"ready": True})
        return True

    def step(self) -> None:
        """Carry the next frame out. Raises CopierGone."""
        head, payload = self._inbox.next()
        where = head["topic"], head["partition"]
        if head["do"] == "assign":
            self._hook(where, lambda: self._handler.on_assign(*where, head["offset"]))
        elif head["do"] == "release":
            self._hook(where, lambda: self._handler.on_release(*where))
        else:
            self._chunk(head, payload)

    def _hook(self, where: tuple[str, int], call: Callable[[], None]) -> None:
        try:
            call()
        except BaseException as error:
            log_stack(f"{where[0]}/{where[1]}", error)
            self._channel.send({"failed": f"handler: {reason_of(error)}"})
        else:
            self._channel.send({"done": True})

    def _chunk(self, head: Head, payload: memoryview) -> None:
        began_s = time.monotonic()
        batches, at = [], 0
        for size, position in head["batches"]:
            batches.append((payload[at : at + size], position))
            at += size
        try:
            self._work.run(head["topic"], head["partition"], head["target"], batches)
        except ChunkFailed as error:
            self._channel.send({"failed": str(error)})
        else:
            self._work.finish(head["next"])
            busy_ms = (time.monotonic() - began_s) * 1_000
            self._channel.send({"done": True, "busyMs": round(busy_ms, 3)})

    def _report(self, next_offset: int, batches: Iterable[Ready]) -> None:
        ready = tuple(batches)
        described = [batch.described() for batch in ready]
        head = {"handled": next_offset, "batches": described, "counts": self._work.take_counts()}
        self._channel.send(head, [batch.built.data for batch in ready])


def make(name: str, args: str) -> Handler:
    """The handler of `package.module:factory`. Raises what importing and making it raise."""
    module, _, factory = name.partition(":")
    handler: Any = getattr(importlib.import_module(module), factory)(**json.loads(args))
    if not isinstance(handler, Handler):
        raise TypeError(f"the factory returned {type(handler).__name__}, not a Handler")
    return handler


def limit_memory(size_bytes: int) -> None:
    """Limit the memory of this process; more is a MemoryError."""
    resource.setrlimit(resource.RLIMIT_DATA, (size_bytes, size_bytes))


def end_with_parent() -> None:
    """Be killed when the copier is: code that never returns would outlive it (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> None:
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    peer = socket.socket(fileno=int(sys.argv[1]))
    try:
        host = Host(Channel(peer), limit_memory=limit_memory)
        if host.begin():
            while True:
                host.step()
    except (CopierGone, BrokenPipeError, ConnectionResetError):
        pass
    finally:
        peer.close()


if __name__ == "__main__":
    main()
