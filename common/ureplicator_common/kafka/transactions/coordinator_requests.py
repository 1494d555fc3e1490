"""Requests to the coordinator of a transactional id or a group, repeated while an error is temporary."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ureplicator_common.errors import OperatingError
from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_common.kafka.client import MIN_SILENCE_S, Broker, ClusterClient, NoCoordinator
from ureplicator_common.kafka.errors import (
    COORDINATOR_MOVED,
    FENCED,
    WAIT_FOR_TRANSACTION,
    ErrorCode,
    Rights,
    refusal,
)
from ureplicator_common.kafka.transactions.fencing import retry_delays

COORDINATOR_TIMEOUT_S = 15.0
"""Time for which one operation is retried while a coordinator moves or finishes a former transaction."""

T = TypeVar("T")
NO_RIGHTS: Rights = {}

Attempt = tuple[set[int], T]
"""Error codes that a request does not handle itself, and its result, valid without such codes."""


class Fenced(OperatingError):
    """Another process initialised our transactional id: ownership is lost."""


def until_accepted(
    client: ClusterClient,
    *,
    key: str,
    kind: int,
    attempt: Callable[[Broker], Attempt[T]],
    repeatable: bool = False,
    waits: bool = True,
    rights: Rights = NO_RIGHTS,
) -> T:
    """Repeat a request until no error is temporary; its result. Raises Fenced, ClusterUnavailable.

    `repeatable`: one without a response may be sent again, to the coordinator as it is then. `waits`: for a
    coordinator that is being elected; nothing was sent then. `rights`: those that the request needs.
    """
    deadline_s = client.deadline_s(COORDINATOR_TIMEOUT_S)
    for delay_s in retry_delays():
        try:
            returned, result = attempt(client.coordinator(key, kind))
        except ClusterUnavailable as error:
            again = repeatable or (waits and isinstance(error, NoCoordinator))
            if not again or client.now_s() + delay_s + MIN_SILENCE_S > deadline_s:
                raise
            client.pause(delay_s)
            continue
        codes = returned - {int(ErrorCode.NONE)}
        if not codes:
            return result
        names = ", ".join(
            sorted(refusal(code, rights.get(code, ""), client.name) for code in codes)
        )
        if codes & FENCED:
            raise Fenced(f"{key}: {names}")
        if codes & COORDINATOR_MOVED:
            client.forget_coordinator(key, kind)
        elif not codes <= WAIT_FOR_TRANSACTION:
            raise ClusterUnavailable(f"{key}: {names}")
        if client.now_s() > deadline_s:
            raise ClusterUnavailable(f"{key}: still {names}")
        client.pause(delay_s)
    raise AssertionError("the delays have no end")
