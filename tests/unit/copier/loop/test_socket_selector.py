"""Selector of the copier's loop: sockets that come, go, and take over each other's numbers."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from ureplicator_worker.copier.loop.mailbox import Mailbox
from ureplicator_worker.copier.loop.socket_selector import SocketSelector


class Wire:
    def __init__(self) -> None:
        self.ours, self.peer = socket.socketpair()
        self.wants_write = self.urgent = False

    def fileno(self) -> int:
        return self.ours.fileno()

    def close(self) -> None:
        self.ours.close()
        self.peer.close()


class Group:
    def __init__(self, *wires: Wire) -> None:
        self.open = list(wires)
        self.readable: list[Wire] = []
        self.writable: list[Wire] = []

    def on_readable(self, socket: Wire, now_s: float) -> None:
        socket.ours.recv(1)
        self.readable.append(socket)

    def on_writable(self, socket: Wire, now_s: float) -> None:
        self.writable.append(socket)


@pytest.fixture
def loop() -> Iterator[SocketSelector]:
    loop = SocketSelector()
    yield loop
    loop.close()


def turn(loop: SocketSelector, *groups: Group, timeout_s: float = 0.0) -> None:
    loop.turn(groups, timeout_s=timeout_s, work=lambda: None)


def test_a_readable_socket_reaches_its_group(loop: SocketSelector) -> None:
    with closing(Wire()) as one, closing(Wire()) as two:
        first, second = Group(one), Group(two)
        two.peer.send(b"x")
        turn(loop, first, second)
        assert (first.readable, second.readable) == ([], [two])


def test_a_socket_is_writable_only_while_it_wants_to_write(loop: SocketSelector) -> None:
    with closing(Wire()) as wire:
        group = Group(wire)
        turn(loop, group)
        assert group.writable == []
        wire.wants_write = True
        turn(loop, group)
        assert group.writable == [wire]
        wire.wants_write = False
        turn(loop, group)
        assert group.writable == [wire]


def test_what_urgent_sockets_bring_is_sent_before_another_is_served(loop: SocketSelector) -> None:
    with closing(Wire()) as first, closing(Wire()) as second, closing(Wire()) as urgent:
        urgent.urgent = True
        group = Group(first, second, urgent)
        sent: list[int] = []

        def work() -> None:
            sent.append(len(group.readable))
            if len(sent) == 1:
                urgent.peer.send(b"x")

        for wire in group.open:
            wire.peer.send(b"x")
        loop.turn([group], timeout_s=0.0, work=work)
        assert [wire.urgent for wire in group.readable] == [True, False, True, False]
        assert sent == [1, 3, 4]


def test_sending_follows_each_turn(loop: SocketSelector) -> None:
    with closing(Wire()) as wire:
        sent: list[bool] = []
        for urgent in (False, True):
            wire.urgent = urgent
            for data in (b"x", b""):
                wire.peer.send(data)
                loop.turn([Group(wire)], timeout_s=0.0, work=lambda: sent.append(True))
        assert len(sent) == 4


def test_a_socket_that_left_its_group_is_not_served(loop: SocketSelector) -> None:
    with closing(Wire()) as wire:
        group = Group(wire)
        turn(loop, group)
        group.open.clear()
        wire.peer.send(b"x")
        turn(loop, group)
        assert group.readable == []


def test_a_new_socket_under_the_number_of_a_closed_one(loop: SocketSelector) -> None:
    former = Wire()
    group = Group(former)
    turn(loop, group)
    number = former.fileno()
    former.close()
    with closing(Wire()) as latter:
        assert latter.fileno() == number
        group.open[:] = [latter]
        latter.peer.send(b"x")
        turn(loop, group)
        assert group.readable == [latter]


def test_a_post_from_a_thread_ends_the_wait(loop: SocketSelector) -> None:
    mailbox: Mailbox[str] = Mailbox(loop.wake)
    thread = threading.Timer(0.05, mailbox.post, ["event"])
    thread.start()
    turn(loop, timeout_s=30.0)
    thread.join()
    assert list(mailbox.take()) == ["event"]


def test_many_wake_ups_are_one(loop: SocketSelector) -> None:
    for _ in range(10_000):
        loop.wake()
    for _ in range(100):
        turn(loop)
    mailbox: Mailbox[int] = Mailbox(loop.wake)
    mailbox.post(1)
    turn(loop, timeout_s=30.0)
    assert list(mailbox.take()) == [1]


def test_an_event_posted_while_others_are_taken_waits_for_the_next_turn() -> None:
    mailbox: Mailbox[int] = Mailbox(lambda: None)
    mailbox.post(1)
    taken = []
    for event in mailbox.take():
        taken.append(event)
        mailbox.post(event + 1)
    assert taken == [1]
    assert list(mailbox.take()) == [2]
