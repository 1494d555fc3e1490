"""Request ids: one id in the response header, the log, the written intent and the history of what the
leader made of it.

A client may choose the id (`X-Request-Id`, or the trace id of a `traceparent`) and then finds it in all of
these. A suffix of ours is appended, since the request id of an intent also shows whether that write was
applied (`coordination.edit`) and whether a rebalance was done: two requests with the same id must not be
taken for one.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from flask import Response, g, request

from ureplicator_controller.core.reporting.authorship import id_of, reference
from ureplicator_controller.core.spans import parsed_traceparent

HEADER = "X-Request-Id"
TRACEPARENT = "traceparent"
_VALID = re.compile(r"[a-zA-Z0-9._-]{1,64}")
_SUFFIX_LENGTH = 8
"""Distinguishes requests that a client sends with the same id."""


class RequestIds:
    """`new_id` returns a unique id, `caller` the name in the login of the present request."""

    def __init__(self, new_id: Callable[[], str], *, caller: Callable[[], str]) -> None:
        self._new_id = new_id
        self._caller = caller

    def current(self) -> str:
        """Id of the present request; a client's id in an invalid form is ignored."""
        if "request_id" not in g:
            theirs, own = request.headers.get(HEADER, "") or _trace_id(), self._new_id()
            g.request_id = f"{theirs}-{own[:_SUFFIX_LENGTH]}" if _VALID.fullmatch(theirs) else own
        return str(g.request_id)

    def reference(self) -> str:
        """Stored form of the present request: its id, and who sent it."""
        return reference(self.current(), self._caller())

    def add_header(self, response: Response) -> Response:
        """Add the id to the header of every response to a write."""
        if is_write():
            response.headers[HEADER] = self.current()
        return response


def _trace_id() -> str:
    client = parsed_traceparent(request.headers.get(TRACEPARENT, ""))
    return client[0] if client else ""


def is_write() -> bool:
    return request.method not in ("GET", "HEAD", "OPTIONS")


def is_of(stored: str, wanted: str) -> bool:
    """True if `wanted` is the request's whole id, or the part of it that its client chose."""
    id = id_of(stored)
    return wanted in (id, id[: -1 - _SUFFIX_LENGTH])
