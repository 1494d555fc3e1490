"""Process of an auditor, without Spark: its registration, and a signal during its start."""

from __future__ import annotations

import sys
from typing import Any
from unittest.mock import Mock

import pytest

from ureplicator_common.config.settings import Settings
from ureplicator_common.coordination import OutcomeUnknown
from ureplicator_testkit.control.memory_coordination import MemoryCoordination, MemoryStore
from ureplicator_worker.auditor.daemon import Auditor


def auditor_on(client: MemoryCoordination) -> Auditor:
    settings = Settings.model_validate(
        {
            "fleet": "test",
            "zookeeper": {"hosts": "z:1"},
            "clusters": {name: {"bootstrap.servers": f"{name}:1"} for name in ("west", "east")},
            "routes": [{"source": "west", "target": "east"}],
        }
    )
    return Auditor(settings, id="a1", coordination=client, connect=lambda timeout_s: None)


def test_it_registers_by_itself() -> None:
    store = MemoryStore()
    client = MemoryCoordination(store)
    assert auditor_on(client)._register(40_200)
    assert store.children("/ureplicator/test/audits/auditors") == ["a1"]


def test_a_write_of_unknown_outcome_does_not_end_it() -> None:
    client = MemoryCoordination(MemoryStore())
    auditor = auditor_on(client)

    def ensure(path: str) -> None:
        auditor.stop()
        raise OutcomeUnknown(f"the connection was lost: {path}")

    client.ensure = ensure  # type: ignore[method-assign]
    assert not auditor._register(40_200), "it waits, until it is stopped here"


def test_each_session_has_a_live_node() -> None:
    store = MemoryStore()
    client = MemoryCoordination(store)
    auditor = auditor_on(client)
    assert auditor._register(40_200)
    before = client.session()
    assert auditor._register_again(40_200) == before
    store.expire(client.expire())
    assert auditor._register_again(40_200) is None, "there is no session: it is tried again"
    client.restore()
    assert auditor._register_again(40_200) == client.session() != before
    assert store.children("/ureplicator/test/audits/auditors") == ["a1"]


class SignalWhenCollected:
    """A signal comes while its finalizer runs: Python drops what the handler raises."""

    def __init__(self, auditor: Auditor) -> None:
        self._auditor = auditor

    def __del__(self) -> None:
        self._auditor.stop()


def test_a_signal_in_a_finalizer_during_the_start_ends_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = MemoryStore()
    auditor = auditor_on(MemoryCoordination(store))
    printed: list[Any] = []

    def parts(spark: Any) -> tuple[Mock, list[Any]]:
        SignalWhenCollected(auditor)
        return Mock(), []

    monkeypatch.setattr(sys, "unraisablehook", printed.append)
    monkeypatch.setattr(auditor, "_open", lambda closing: (Mock(), Mock()))
    monkeypatch.setattr(auditor, "_parts", parts)
    assert auditor.run() == 0
    assert printed == []
    assert store.node("/ureplicator/test/audits/auditors/a1") is None
