"""A worker without a leader, and one that is ended while it starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from ureplicator_common.config.settings import Settings
from ureplicator_common.coordination.memory import MemoryCoordination, MemoryStore
from ureplicator_common.znodes import Paths
from ureplicator_worker.daemon import Worker, leader_missing

SETTINGS = Settings.model_validate(
    {
        "fleet": "local",
        "zookeeper": {"hosts": "127.0.0.1:1"},
        "clusters": {
            "west": {"bootstrap.servers": "127.0.0.1:2"},
            "east": {"bootstrap.servers": "127.0.0.1:3"},
        },
        "routes": [{"source": "west", "target": "east"}],
    }
)


def test_a_fleet_without_a_leader_is_named() -> None:
    coordination, paths = MemoryCoordination(MemoryStore()), Paths("local")
    assert "waits for a leader of fleet local" in leader_missing(coordination, paths, "local")
    coordination.ensure(paths.leader)
    assert leader_missing(coordination, paths, "local") == ""


@pytest.mark.parametrize(("signals", "code"), [(0, 1), (1, 0)])
def test_a_worker_that_is_ended_while_it_starts_did_not_fail(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    signals: int,
    code: int,
) -> None:
    """Its JVM may end first, by the same signal."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    worker = Worker(
        SETTINGS,
        id="w1",
        coordination=MemoryCoordination(MemoryStore()),
        connect=lambda _: None,
        fence=lambda *_: None,
    )
    for _ in range(signals):
        worker.stop()
    assert worker.run() == code
    assert ("Java is missing" in capfd.readouterr().err) == bool(code)
