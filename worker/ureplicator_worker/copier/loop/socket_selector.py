"""Selector of the copier's loop: sockets that come and go, and a wake-up for the threads.

Sockets that are urgent are served first in a turn, and again after each of the others, and what they
brought is sent at once. So a record of a partition that is caught up waits for one other connection at most,
however many have something to receive and to send.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ureplicator_worker.copier.lane import Socket, SocketGroup

Ready = tuple[SocketGroup, Socket, int]
"""A socket, its group, and what it is ready for."""


class SocketSelector:
    """`turn` once per iteration of the loop; `wake` ends its wait, from any thread."""

    def __init__(self, *, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._selector = selectors.DefaultSelector()
        self._masks: dict[Any, tuple[int, int]] = {}
        self._wake_in, self._wake_out = socket.socketpair()
        for end in (self._wake_in, self._wake_out):
            end.setblocking(False)
        self._selector.register(self._wake_out, selectors.EVENT_READ)

    def wake(self) -> None:
        try:
            self._wake_in.send(b"\0")
        except OSError:
            return  # full: the loop is awake anyway; closed: it has ended

    def turn(
        self, groups: Sequence[SocketGroup], *, timeout_s: float, work: Callable[[], None]
    ) -> None:
        """Wait, and serve the sockets that are ready; `work` sends what can be sent then."""
        self._register(groups)
        urgent, others = self._wait(timeout_s)
        if urgent:
            self._serve(urgent)
            work()
        for ready in others:
            self._serve((ready,))
            urgent, _ = self._wait(0.0)
            if urgent:
                self._serve(urgent)
                work()
        if others or not urgent:
            work()

    def _serve(self, sockets: Iterable[Ready]) -> None:
        for group, ready, mask in sockets:
            if mask & selectors.EVENT_READ:
                group.on_readable(ready, self._now_s())
            if mask & selectors.EVENT_WRITE:
                group.on_writable(ready, self._now_s())

    def _wait(self, timeout_s: float) -> tuple[list[Ready], list[Ready]]:
        """Sockets that are ready: those that are urgent, and the others."""
        urgent: list[Ready] = []
        others: list[Ready] = []
        for key, mask in self._selector.select(timeout_s):
            if key.fileobj is self._wake_out:
                self._wake_out.recv(4096)
                continue
            ready: Socket = key.fileobj  # type: ignore[assignment]
            (urgent if ready.urgent else others).append((key.data, ready, mask))
        return urgent, others

    def _register(self, groups: Sequence[SocketGroup]) -> None:
        """Tell the selector which sockets there are and what they wait for."""
        wanted: dict[Any, tuple[int, int]] = {}
        owners: dict[Any, SocketGroup] = {}
        for group in groups:
            for sock in group.open:
                mask = selectors.EVENT_READ | (selectors.EVENT_WRITE if sock.wants_write else 0)
                wanted[sock] = (sock.fileno(), mask)
                owners[sock] = group
        if wanted == self._masks:
            return
        for sock, (descriptor, _) in self._masks.items():
            if wanted.get(sock, (-1, 0))[0] != descriptor:
                self._unregister(descriptor)
        for sock, (descriptor, mask) in wanted.items():
            known = self._masks.get(sock)
            if known is None:
                self._unregister(descriptor)
                self._selector.register(sock, mask, owners[sock])
            elif known[1] != mask:
                self._selector.modify(sock, mask, owners[sock])
        self._masks = wanted

    def _unregister(self, descriptor: int) -> None:
        """Unregister a socket by number: the socket behind it may be closed already, and the number in
        use again."""
        if descriptor in self._selector.get_map():
            self._selector.unregister(descriptor)

    def close(self) -> None:
        self._selector.close()
        self._wake_in.close()
        self._wake_out.close()
