"""Selector of the copier's loop: sockets that come and go, and a wake-up for the threads."""

from __future__ import annotations

import selectors
import socket
from collections.abc import Sequence
from typing import Any

from ureplicator_worker.copier.lane import Socket, SocketGroup


class SocketSelector:
    """`wait` once per iteration of the loop; `wake` ends it, from any thread."""

    def __init__(self) -> None:
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

    def wait(
        self, groups: Sequence[SocketGroup], *, timeout_s: float
    ) -> list[tuple[SocketGroup, Socket, int]]:
        """Sockets that are ready, with their group and what they are ready for."""
        self._register(groups)
        ready: list[tuple[SocketGroup, Socket, int]] = []
        for key, mask in self._selector.select(timeout_s):
            if key.fileobj is self._wake_out:
                self._wake_out.recv(4096)
            else:
                ready.append((key.data, key.fileobj, mask))  # type: ignore[arg-type]
        return ready

    def _register(self, groups: Sequence[SocketGroup]) -> None:
        """Tell the selector which sockets there are and what they wait for."""
        wanted: dict[Any, tuple[int, int]] = {}
        owners: dict[Any, SocketGroup] = {}
        for group in groups:
            for each in group.open:
                mask = selectors.EVENT_READ | (selectors.EVENT_WRITE if each.wants_write else 0)
                wanted[each] = (each.fileno(), mask)
                owners[each] = group
        if wanted == self._masks:
            return
        for each, (descriptor, _) in self._masks.items():
            if wanted.get(each, (-1, 0))[0] != descriptor:
                self._unregister(descriptor)
        for each, (descriptor, mask) in wanted.items():
            known = self._masks.get(each)
            if known is None:
                self._unregister(descriptor)
                self._selector.register(each, mask, owners[each])
            elif known[1] != mask:
                self._selector.modify(each, mask, owners[each])
        self._masks = wanted

    def _unregister(self, descriptor: int) -> None:
        """By number: the socket behind it may be closed already, and the number in use again."""
        if descriptor in self._selector.get_map():
            self._selector.unregister(descriptor)

    def close(self) -> None:
        self._selector.close()
        self._wake_in.close()
        self._wake_out.close()


def handle(group: SocketGroup, ready: Socket, mask: int, now_s: float) -> None:
    if mask & selectors.EVENT_READ:
        group.on_readable(ready, now_s)
    if mask & selectors.EVENT_WRITE:
        group.on_writable(ready, now_s)
