"""The id of a request: what the answer's header, the log, the intent that is written and the history
of what the leader made of it all say.

A caller may choose it (`X-Request-Id`), and then finds it again everywhere. Ours follows theirs, since
an intent's request id also tells whether that write was made (`coordination.intents`) and whether a
rebalance was done: two requests of one name must not be taken for one.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from flask import Response, g, request

HEADER = "X-Request-Id"
_SANE = re.compile(r"[a-zA-Z0-9._-]{1,64}")
_OWN_LENGTH = 8
"""Tells apart what one caller sends under one name."""


class RequestIds:
    """`new_id` makes one that nobody had before."""

    def __init__(self, new_id: Callable[[], str]) -> None:
        self._new_id = new_id

    def current(self) -> str:
        """Of the request that is being answered; what a caller says in a form of no use is ignored."""
        if "request_id" not in g:
            theirs, own = request.headers.get(HEADER, ""), self._new_id()
            g.request_id = f"{theirs}-{own[:_OWN_LENGTH]}" if _SANE.fullmatch(theirs) else own
        return str(g.request_id)

    def tell(self, response: Response) -> Response:
        """In the header of every answer to a write."""
        if is_write():
            response.headers[HEADER] = self.current()
        return response


def is_write() -> bool:
    return request.method not in ("GET", "HEAD", "OPTIONS")


def is_of(request_id: str, wanted: str) -> bool:
    """Whether a request is the one that is meant, by its whole id or by what its caller called it."""
    return request_id == wanted or request_id[: -1 - _OWN_LENGTH] == wanted
