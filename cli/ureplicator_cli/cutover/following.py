"""A cutover that is followed: its state, as often as it changes, until it has reached an end.

A controller that does not respond is no reason to give up: the leader goes on, and so may another one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ureplicator_cli.hints import in_commands
from ureplicator_cli.output import fail, warn
from ureplicator_cli.rest_client import RestClient, RestFailure, quoted

POLL_S = 0.25
TIMEOUT_S = 5.0
"""Time for a controller to respond: another look comes soon."""
AT_REST = frozenset({"DONE", "ABORTED"})
MOVED = frozenset({"WATCHED", *AT_REST})
"""States in which nothing is left to wait for: clients are at the target, and the way back is ready."""

Body = dict[str, Any]


def readings(
    url: str,
    name: str,
    *,
    timeout_s: float | None = None,
    now_s: Callable[[], float] = time.monotonic,
    wait: Callable[[float], None] = time.sleep,
) -> Iterator[Body]:
    """Readings of a cutover, until nobody takes more of them. Ends the process if it is refused, or after
    `timeout_s`."""
    client, path, failure = RestClient(url, timeout_s=TIMEOUT_S), f"/cutovers/{quoted(name)}", ""
    until_s = None if timeout_s is None else now_s() + timeout_s
    while True:
        try:
            yield client.call("GET", path)
            failure = ""
        except RestFailure as error:
            if error.refused:
                fail(in_commands(str(error)))
            if str(error) != failure:
                failure = str(error)
                warn(f"trying again: {in_commands(failure)}")
        if until_s is not None and now_s() > until_s:
            fail(f"{name} took longer than {timeout_s:g} s: it goes on without this command")
        wait(POLL_S)


def followed(found: Iterator[Body], *, until: Callable[[Body], bool]) -> Iterator[Body]:
    """Readings that differ from the one before in more than the time that goes by; the last one fulfils
    `until`."""
    before: Mapping[str, Any] | None = None
    for body in found:
        is_end = until(body)
        now = {key: value for key, value in body.items() if key != "blockedSeconds"}
        if now != before or is_end:
            yield body
        if is_end:
            return
        before = now


def is_idle(body: Body) -> bool:
    """True if nothing of it is under way."""
    return body["state"] in AT_REST or body["wanted"] == "plan"


def is_moved(run: str) -> Callable[[Body], bool]:
    """A test that this run has ended, or has come as far as clients wait for; or that it is not the last one
    any more."""
    return lambda body: _is_replaced(body, run) or (body["run"] == run and body["state"] in MOVED)


def is_rehearsed(run: str) -> Callable[[Body], bool]:
    """A test that this rehearsal has ended, or is not the last request any more."""
    return lambda body: _is_replaced(body, run) or (body["run"] == run and is_idle(body))


def _is_replaced(body: Body, run: str) -> bool:
    """True if another run was requested. An abort is a request for the same run."""
    return body["run"] not in (None, run) or (body["run"] is None and body["request"] != run)
