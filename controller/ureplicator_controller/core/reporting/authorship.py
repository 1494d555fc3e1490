"""Reference to a request as it is stored: its id, and who sent it. Pure.

    4f1c09aa            without login
    4f1c09aa/olga       with: the name of the token

Both are one text, in intents, switches, nodes of workers and the history alike. So no writer can store one
without the other, and an event names its author. An id has no slash.
"""

from __future__ import annotations


def reference(id: str, by: str) -> str:
    """`by`: "" without login."""
    assert "/" not in id
    return f"{id}/{by}" if by else id


def id_of(request: str) -> str:
    return request.partition("/")[0]


def by_of(request: str) -> str:
    """Name of the caller; "" if it had no login, or nobody requested it."""
    return request.partition("/")[2]


def cause(request: str) -> str:
    """Text for the end of a log line: ` (request 4f1c09aa by olga)`; "" where nobody requested it."""
    if not request:
        return ""
    by = by_of(request)
    return f" (request {id_of(request)} by {by})" if by else f" (request {request})"
