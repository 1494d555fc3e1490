"""Spans of requests and of events of the fleet. Pure.

    trace 4f1c...                      the id of a request
      DELETE /instances/<worker>       its span
      move, move, ...                  what the leader made of it, each until its new owner was ONLINE

Nothing is traced on the way of a record. A span is made from what is known anyway: a request that was
answered, and an event in the fleet's history, which names the request that caused it. Ids are derived from
request ids and from numbers of events, so spans fit together, whichever process makes them.

A client's own trace goes on (https://www.w3.org/TR/trace-context/): `traceparent` names its id, which becomes
the id of the request, as an `X-Request-Id` does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256

from ureplicator_common.model import EventKind
from ureplicator_common.znode_contents import PastEvent
from ureplicator_controller.core.reporting.authorship import by_of, id_of

TRACE_ID_BYTES, SPAN_ID_BYTES = 16, 8
FAILED = 500
"""The first status that is a failure of the server."""
_TRACE_ID = re.compile(r"([0-9a-f]{32})(-.*)?")
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-.*)?")
_ZERO = re.compile(r"0+")

Attribute = str | int


@dataclass(frozen=True, slots=True)
class Span:
    """`trace` of 128 bits, `id` and `parent` of 64; `parent` None: it has none. `is_request`: a client waited
    for it."""

    trace: int
    id: int
    parent: int | None
    name: str
    begin_ms: int
    end_ms: int
    attributes: Mapping[str, Attribute]
    is_request: bool = False
    has_failed: bool = False


def parsed_traceparent(header: str) -> tuple[str, int] | None:
    """Trace id as text and span id of a client; None: there is none, or it is malformed."""
    found = _TRACEPARENT.fullmatch(header)
    if found is None or _ZERO.fullmatch(found[1]) or _ZERO.fullmatch(found[2]):
        return None
    return found[1], int(found[2], 16)


def request_span(
    request: str,
    *,
    method: str,
    path: str,
    pattern: str,
    status: int,
    caller: str,
    begin_ms: int,
    end_ms: int,
    parent: int | None = None,
) -> Span:
    """Span of a request by its id. `pattern`: its path without names, "" if it is none of REST's; `parent`:
    span of the client."""
    attributes: dict[str, Attribute] = {
        "http.request.method": method,
        "http.response.status_code": status,
        "http.route": pattern,
        "url.path": path,
        "ureplicator.request": request,
    }
    if caller:
        attributes["enduser.id"] = caller
    return Span(
        trace=_trace_of(request),
        id=_span_of(request),
        parent=parent,
        name=f"{method} {pattern}".rstrip(),
        begin_ms=begin_ms,
        end_ms=end_ms,
        attributes=attributes,
        is_request=True,
        has_failed=status >= FAILED,
    )


def event_span(fleet: str, past: PastEvent) -> Span | None:
    """Span of an event of the fleet, below that of the request that caused it; None: a move that has not
    ended yet."""
    if past.kind is EventKind.MOVE and past.took_ms is None:
        return None
    own, request = f"{fleet}/{past.number}", id_of(past.request)
    return Span(
        trace=_trace_of(request or own),
        id=_span_of(own),
        parent=_span_of(request) if request else None,
        name=past.kind,
        begin_ms=past.wall_ms,
        end_ms=past.wall_ms + (past.took_ms or 0),
        attributes=_event_attributes(fleet, past),
    )


def _event_attributes(fleet: str, past: PastEvent) -> dict[str, Attribute]:
    named: dict[str, Attribute | None] = {
        "ureplicator.fleet": fleet,
        "ureplicator.event": past.id,
        "ureplicator.number": past.number,
        "ureplicator.reason": past.reason,
        "ureplicator.request": id_of(past.request),
        "enduser.id": by_of(past.request),
        "ureplicator.worker": past.worker,
        "ureplicator.from": past.source,
        "ureplicator.to": past.target,
    }
    if past.partition is not None:
        named |= {
            "ureplicator.route": str(past.partition.route),
            "ureplicator.topic": past.partition.topic,
            "ureplicator.partition": past.partition.number,
            "ureplicator.owner_epoch": past.owner_epoch,
        }
    return {name: value for name, value in named.items() if value not in (None, "")}


def _trace_of(id: str) -> int:
    """A request id that is, or begins with, a trace id names that trace; any other is hashed to one."""
    found = _TRACE_ID.fullmatch(id)
    if found is not None and not _ZERO.fullmatch(found[1]):
        return int(found[1], 16)
    return _hashed(f"trace {id}", TRACE_ID_BYTES)


def _span_of(id: str) -> int:
    return _hashed(f"span {id}", SPAN_ID_BYTES)


def _hashed(text: str, size: int) -> int:
    return int.from_bytes(sha256(text.encode()).digest()[:size])
