"""End of the REST process when the daemon has ended: it stops its own parent, and no other process."""

from __future__ import annotations

import os
import signal

import pytest

from ureplicator_controller import wsgi

MASTER = 4711


@pytest.fixture
def signals(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Signals sent, instead of sending them."""
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append((pid, number)))
    return sent


def test_the_parent_is_stopped(
    monkeypatch: pytest.MonkeyPatch, signals: list[tuple[int, int]]
) -> None:
    monkeypatch.setattr(os, "getppid", lambda: MASTER)
    assert wsgi.stop_master(MASTER)
    assert signals == [(MASTER, signal.SIGTERM)]


def test_a_process_that_inherited_this_one_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, signals: list[tuple[int, int]]
) -> None:
    monkeypatch.setattr(os, "getppid", lambda: 1)
    assert not wsgi.stop_master(MASTER)
    assert signals == []
