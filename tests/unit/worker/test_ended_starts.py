"""A worker, or an auditor, that is ended while it starts: it did not fail, and says so in one line."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkConf

from ureplicator_common.config.settings import Settings
from ureplicator_common.errors import PermanentError
from ureplicator_testkit.control.memory_coordination import MemoryCoordination, MemoryStore
from ureplicator_worker.auditor.daemon import Auditor
from ureplicator_worker.daemon import Worker
from ureplicator_worker.engines import jvm

SETTINGS = Settings.model_validate(
    {
        "fleet": "local",
        "zookeeper": {"hosts": "127.0.0.1:1"},
        "clusters": {
            "west": {"bootstrap.servers": "127.0.0.1:2"},
            "east": {"bootstrap.servers": "127.0.0.1:3"},
        },
        "routes": [{"source": "west", "target": "east"}],
        "worker": {"port": 0},
        "audit": {"port": 0},
    }
)


def a_worker() -> Worker:
    return Worker(
        SETTINGS,
        id="w1",
        coordination=MemoryCoordination(MemoryStore()),
        connect=lambda _: None,
        fence=lambda *_: None,
    )


def an_auditor() -> Auditor:
    coordination = MemoryCoordination(MemoryStore())
    return Auditor(SETTINGS, id="w1", coordination=coordination, connect=lambda _: None)


ROLES = pytest.mark.parametrize("role", [a_worker, an_auditor])


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Restore those of the test process."""
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@ROLES
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("swallowed", [False, True])
def test_a_signal_ends_the_start_at_once(
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    role: Callable[[], Any],
    number: signal.Signals,
    swallowed: bool,
) -> None:
    """A signal to the whole group ends Java, too. Code that was interrupted may go on."""

    def find_java() -> str:
        try:
            os.kill(os.getpid(), number)
        except SystemExit:
            if not swallowed:
                raise
        raise PermanentError("java does not run")

    monkeypatch.setattr(jvm, "find_java", find_java)
    process = role()
    signal.signal(number, lambda *_: process.stop())
    assert process.run() == 0
    assert capfd.readouterr().err == ""


@ROLES
def test_a_start_that_fails_by_itself_exits_with_1(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    role: Callable[[], Any],
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert role().run() == 1
    assert "Java is missing" in capfd.readouterr().err


def test_a_signal_while_the_jvm_is_launched_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched: list[subprocess.Popen[bytes]] = []

    def launch(*_: object) -> None:
        launched.append(subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE))
        os.kill(os.getpid(), signal.SIGTERM)

    def end(*_: object) -> None:
        raise SystemExit(0)

    signal.signal(signal.SIGTERM, end)
    monkeypatch.setattr(jvm, "launch_gateway", launch)
    with pytest.raises(SystemExit):
        jvm.start_driver(SparkConf(loadDefaults=False), "java", scratch=tmp_path)
    with launched[0] as process:
        assert process.wait() == -signal.SIGKILL


def test_a_context_leaves_sigint_to_its_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Context:
        """Sets a handler, as pyspark does."""

        applicationId = "local-1"

        def __init__(self, **_: object) -> None:
            signal.signal(signal.SIGINT, lambda *_: None)

    def own(*_: object) -> None:
        """Handler of the process."""

    signal.signal(signal.SIGINT, own)
    monkeypatch.setattr(jvm, "launch_gateway", lambda *_: None)
    monkeypatch.setattr(jvm, "SparkContext", Context)
    jvm.start_driver(SparkConf(loadDefaults=False), "java", scratch=tmp_path)
    assert signal.getsignal(signal.SIGINT) is own
