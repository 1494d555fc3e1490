"""Rights that the doctor asks for, at coordinators that are not ready yet."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_common.kafka.client import Broker, NoCoordinator
from ureplicator_common.kafka.errors import ErrorCode
from ureplicator_common.kafka.preflight_requests import (
    ELECTION_S,
    _member,
    _refusal,
    _transaction,
)
from ureplicator_testkit.kafka.coordinator import Coordinator

UNKNOWN_MEMBER_ID = 25


class Electing(Coordinator):
    """No coordinator for so many questions: a fresh cluster makes the topic of its groups at the first."""

    def __init__(self, refusals: int, reason: str, **scripts: list[Any]) -> None:
        super().__init__(**scripts)
        self.refusals, self.reason = refusals, reason

    def coordinator(self, key: str, kind: int) -> Broker:
        if self.refusals:
            self.refusals -= 1
            raise NoCoordinator(f"no coordinator: {self.reason}")
        return super().coordinator(key, kind)


def test_a_coordinator_that_is_being_elected_is_asked_again() -> None:
    client = Electing(5, "COORDINATOR_NOT_AVAILABLE", Heartbeat=[UNKNOWN_MEMBER_ID])
    assert _refusal(partial(_member, "g"), client) == ""
    assert client.refusals == 0


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    ],
)
def test_what_a_coordinator_answers_that_is_not_ready_is_no_right(code: ErrorCode) -> None:
    group = int(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    client = Coordinator(Heartbeat=[int(code), int(code), group], EndTxn=[int(code), 48])
    assert _refusal(partial(_member, "g"), client) == "GROUP_AUTHORIZATION_FAILED"
    assert client.looked_up == 3
    assert _refusal(partial(_transaction, "id"), client) == ""


def test_the_questions_end() -> None:
    client = Electing(10**6, "COORDINATOR_NOT_AVAILABLE")
    began_s = client.clock.monotonic_s()
    with pytest.raises(ClusterUnavailable, match="COORDINATOR_NOT_AVAILABLE"):
        _refusal(partial(_member, "g"), client)
    assert client.clock.monotonic_s() - began_s < 2 * ELECTION_S
    again = Coordinator(Heartbeat=[int(ErrorCode.NOT_COORDINATOR)] * 10**5)
    with pytest.raises(ClusterUnavailable, match="NOT_COORDINATOR"):
        _refusal(partial(_member, "g"), again)


def test_a_denial_is_not_asked_for_again() -> None:
    client = Electing(10**6, "GROUP_AUTHORIZATION_FAILED")
    assert "GROUP_AUTHORIZATION_FAILED" in _refusal(partial(_member, "g"), client)
    assert client.refusals == 10**6 - 1
