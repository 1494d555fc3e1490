"""Accepting connections, with a pause while the process has no descriptor left for another one.

What cannot be accepted stays in the listening socket's queue, and would wake its selector again and
again.
"""

from __future__ import annotations

import errno
import logging
import selectors
import socket

ACCEPT_PAUSE_S = 1.0
EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

logger = logging.getLogger(__name__)


class Listener:
    """`server` is registered in `selector` while connections are accepted."""

    def __init__(self, server: socket.socket, selector: selectors.BaseSelector) -> None:
        self._server = server
        self._selector = selector
        self._paused_until_s = 0.0
        selector.register(server, selectors.EVENT_READ)

    def accept(self, now_s: float) -> socket.socket | None:
        """The next connection; None if there is none that can be accepted now."""
        try:
            return self._server.accept()[0]
        except OSError as error:
            if error.errno in EXHAUSTED:
                logger.warning("no lifeline is accepted for %.0f s: %s", ACCEPT_PAUSE_S, error)
                self._selector.unregister(self._server)
                self._paused_until_s = now_s + ACCEPT_PAUSE_S
            return None

    def resume(self, now_s: float) -> None:
        """Accept connections again once the pause is over."""
        if self._paused_until_s and now_s >= self._paused_until_s:
            self._paused_until_s = 0.0
            self._selector.register(self._server, selectors.EVENT_READ)
