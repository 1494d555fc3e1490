"""The copier's link to its driver: proofs of all routes share it, and its end is noticed once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ureplicator_common.model import OwnerEpoch, Partition, Route
from ureplicator_worker.copier.loop.driver_link import DriverLink
from ureplicator_worker.lifeline.client import LifelineClient, LifelineClosed
from ureplicator_worker.lifeline.messages import Message, ProofRequest, ProofResponse, Stop

ONE, TWO = Route("a", "b"), Route("c", "d")


class MemoryLifeline(LifelineClient):
    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.incoming: list[Message] = []
        self.gone = self.closed = self.full = False

    @property
    def wants_write(self) -> bool:
        return self.full

    def send(self, message: Message) -> None:
        self.on_writable()
        self.sent.append(message)

    def on_writable(self) -> None:
        if self.gone:
            raise LifelineClosed("gone")

    def on_readable(self) -> Iterator[Message]:
        yield from self.incoming
        self.on_writable()

    def close(self) -> None:
        assert not self.closed
        self.closed = True


@pytest.fixture
def lifeline() -> MemoryLifeline:
    return MemoryLifeline()


def request(route: Route, number: int) -> ProofRequest:
    return ProofRequest(number, {Partition(route, "t", 0): OwnerEpoch(1)})


def test_proofs_of_all_routes_are_numbered_together(lifeline: MemoryLifeline) -> None:
    link = DriverLink(lifeline, received=lambda _: None)
    link.send_for(ONE, request(ONE, 1))
    link.send_for(TWO, request(TWO, 1))
    numbers = [message.request_id for message in lifeline.sent if isinstance(message, ProofRequest)]
    assert len(set(numbers)) == 2
    response = ProofResponse(numbers[1], {}, {})
    assert link.route_of(response) == (TWO, ProofResponse(1, {}, {}))
    assert link.route_of(response) is None


def test_messages_reach_the_copier_before_the_end(lifeline: MemoryLifeline) -> None:
    received: list[Message] = []
    link = DriverLink(lifeline, received=received.append)
    lifeline.incoming, lifeline.gone = [Stop()], True
    link.on_readable(lifeline, 0.0)
    assert received == [Stop()]
    assert link.closed
    assert link.open == ()


@pytest.mark.parametrize("act", ["send", "on_writable", "close"])
def test_after_the_end_nothing_is_sent(lifeline: MemoryLifeline, act: str) -> None:
    link = DriverLink(lifeline, received=lambda _: None)
    assert link.ready
    lifeline.gone = True
    match act:
        case "send":
            link.send(Stop())
        case "on_writable":
            link.on_writable(lifeline, 0.0)
        case _:
            link.close()
    assert (link.closed, link.ready, lifeline.closed) == (True, False, True)
    link.send(Stop())
    link.close()
    assert lifeline.sent == []


def test_reports_wait_while_the_driver_does_not_read(lifeline: MemoryLifeline) -> None:
    link = DriverLink(lifeline, received=lambda _: None)
    lifeline.full = True
    assert not link.ready
