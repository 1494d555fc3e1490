"""A worker on real Spark, with stub copiers and coordination in memory: starts, deaths, ends.

Most tests share one worker, since a JVM takes seconds; each uses topics of its own and leaves the
worker with nothing assigned. Those that kill the worker, or its JVM, have one of their own.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests

from ureplicator_testkit.servers.processes import Process, eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

START_S = 40.0
ONLINE_S = 5.0


class StubWorker:
    """The process of `ureplicator_testkit.fleet.stub_worker`, and both sides of it."""

    def __init__(self, log: Path, *, slots: int = 2, watchdog_s: float = 30) -> None:
        self.port = _free_port()
        self.process = Process(
            "stub-worker",
            [
                sys.executable,
                "-m",
                "ureplicator_testkit.fleet.stub_worker",
                str(self.port),
                str(slots),
                str(watchdog_s),
            ],
            log=log,
            env={"PYTHONPATH": _python_path(), "PYTHONUNBUFFERED": "1"},
        )
        self.slots = slots
        found = self.process.wait_for_line(r"^control (\d+)", START_S)
        self.control_port = int(found[1])
        self._control = socket.create_connection(("127.0.0.1", self.control_port))
        self._responses = self._control.makefile()

    def command(self, *command: Any) -> dict[str, Any]:
        self._control.sendall(json.dumps(command).encode() + b"\n")
        response: dict[str, Any] = json.loads(self._responses.readline())
        return response

    def page(self, path: str) -> requests.Response:
        return requests.get(f"http://127.0.0.1:{self.port}{path}", timeout=5)

    def status(self) -> dict[str, Any]:
        response: dict[str, Any] = self.page("/status").json()
        return response

    def await_ready(self) -> None:
        def ready() -> bool:
            self.process.assert_running()
            try:
                return self.page("/ready").status_code == 200
            except requests.ConnectionError:
                return False

        eventually(ready, START_S, "the worker is ready")

    def assign(self, **topics: int) -> None:
        """Whitelist topics and assign all their partitions, with owner epoch 1."""
        for topic, partitions in topics.items():
            self.command("whitelist", f"a.b/{topic}", partitions)
        self.command(
            "assign",
            {f"a.b/{t}/{n}": 1 for t, partitions in topics.items() for n in range(partitions)},
        )

    def current(self) -> dict[str, Any]:
        """Partition -> what the fleet sees of it."""
        current = self.command("seen")["current"]
        partitions: dict[str, Any] = current["partitions"] if current else {}
        return partitions

    def await_current(self, expected: dict[str, str], deadline_s: float = ONLINE_S) -> float:
        """Wait until exactly these states are published; how long it took."""
        start_s = time.monotonic()

        def seen() -> bool:
            return {p: entry["state"] for p, entry in self.current().items()} == expected

        eventually(seen, deadline_s, f"the fleet sees {expected}", poll_s=0.01)
        return time.monotonic() - start_s

    def pid_of_slot(self, number: int) -> int:
        pid: int = self.status()["slots"][number]["pid"]
        return pid

    def jvm(self) -> psutil.Process:
        processes = psutil.Process(self.process.pid).children()
        return next(process for process in processes if process.name() == "java")

    def close(self) -> None:
        self._responses.close()
        self._control.close()
        self.process.kill_tree()


def _python_path() -> str:
    """The testkit, and what this process imports from."""
    support = Path(__file__).parents[2] / "support"
    return os.pathsep.join([str(support), os.environ.get("PYTHONPATH", "")])


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StubWorker]:
    worker = StubWorker(tmp_path_factory.mktemp("shared") / "worker.log")
    try:
        worker.await_ready()
        yield worker
    finally:
        worker.close()


@pytest.fixture
def worker(shared: StubWorker) -> Iterator[StubWorker]:
    yield shared
    shared.assign()
    shared.await_current({}, 10)


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Callable[..., StubWorker]]:
    made: list[StubWorker] = []

    def make(**options: Any) -> StubWorker:
        made.append(StubWorker(tmp_path / "worker.log", **options))
        made[-1].await_ready()
        return made[-1]

    yield make
    for stub in made:
        stub.close()


def test_an_assignment_is_online_at_once_spread_over_slots_and_released_when_removed(
    worker: StubWorker,
) -> None:
    worker.assign(spread=4)
    took_s = worker.await_current({f"a.b/spread/{n}": "ONLINE" for n in range(4)})
    assert took_s < 1
    status = worker.status()
    assert [slot["partitions"] for slot in status["slots"]] == [2, 2]
    assert set(worker.command("seen")["fenced"]) == {"test.a.b.w.0", "test.a.b.w.1"}

    worker.assign(spread=1)
    worker.await_current({"a.b/spread/0": "ONLINE"})
    assert worker.command("seen")["current"]["seenZxid"] > 0


def test_a_partition_is_published_until_the_copier_released_it(worker: StubWorker) -> None:
    worker.assign(slow=1)
    worker.await_current({"a.b/slow/0": "ONLINE"})
    worker.assign()
    worker.await_current({"a.b/slow/0": "OFFLINE"}, 0.5)
    assert "stopping" in worker.current()["a.b/slow/0"]["reason"]
    worker.await_current({})


def test_a_new_owner_epoch_is_proven_again(worker: StubWorker) -> None:
    worker.assign(epoch=1)
    worker.await_current({"a.b/epoch/0": "ONLINE"})
    worker.command("assign", {"a.b/epoch/0": 5})
    eventually(
        lambda: worker.current()["a.b/epoch/0"]["ownerEpoch"] == 5,
        ONLINE_S,
        "the new epoch is held",
    )
    worker.await_current({"a.b/epoch/0": "ONLINE"})


def test_what_is_not_whitelisted_is_refused_with_the_reason(worker: StubWorker) -> None:
    worker.command("assign", {"a.b/unknown/0": 1})
    eventually(
        lambda: "not whitelisted" in worker.current().get("a.b/unknown/0", {}).get("reason", ""),
        ONLINE_S,
        "the refusal is shown",
    )


def test_a_failing_partition_stops_no_other(worker: StubWorker) -> None:
    worker.assign(fails=1, fine=1)
    eventually(
        lambda: worker.current().get("a.b/fails/0", {}).get("state") == "ERROR", ONLINE_S, "ERROR"
    )
    eventually(
        lambda: worker.current().get("a.b/fine/0", {}).get("state") == "ONLINE", ONLINE_S, "ONLINE"
    )
    assert worker.current()["a.b/fails/0"]["reason"] == "failed on purpose"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_copier_is_back_on_the_same_slot_within_5_s(
    worker: StubWorker, number: signal.Signals
) -> None:
    worker.assign(back=4)
    everything = {f"a.b/back/{n}": "ONLINE" for n in range(4)}
    worker.await_current(everything)
    before = {p: e["slot"] for p, e in worker.status()["partitions"].items()}
    victim = worker.pid_of_slot(0)
    os.kill(victim, number)
    eventually(
        lambda: any("copier ended" in entry["reason"] for entry in worker.current().values()),
        ONLINE_S,
        "the end is published",
        poll_s=0.01,
    )
    worker.await_current(everything)
    status = worker.status()
    assert {p: e["slot"] for p, e in status["partitions"].items()} == before
    assert status["slots"][0]["pid"] not in (0, victim)


def test_the_error_of_a_copier_is_the_reason(worker: StubWorker) -> None:
    worker.assign(raises=1)
    eventually(
        lambda: (
            "RuntimeError: cannot copy a.b/raises/0"
            in worker.current().get("a.b/raises/0", {}).get("reason", "")
        ),
        ONLINE_S,
        "the reason is shown",
        poll_s=0.01,
    )


def test_without_zookeeper_copying_goes_on_and_a_new_session_publishes_everything(
    worker: StubWorker,
) -> None:
    worker.assign(calm=2)
    online = {"a.b/calm/0": "ONLINE", "a.b/calm/1": "ONLINE"}
    worker.await_current(online)
    pids = [slot["pid"] for slot in worker.status()["slots"]]
    owner = worker.command("seen")["liveOwner"]
    worker.command("suspend")
    assert worker.command("expire")["live"] is None
    eventually(lambda: worker.status()["session"] != "connected", ONLINE_S, "it knows")
    status = worker.status()
    assert {entry["state"] for entry in status["partitions"].values()} == {"ONLINE"}
    worker.command("restore")
    worker.await_current(online)
    eventually(lambda: worker.command("seen")["liveOwner"] not in (0, owner), 5, "the node is ours")
    assert [slot["pid"] for slot in worker.status()["slots"]] == pids


def test_a_proof_request_waits_while_zookeeper_is_away(worker: StubWorker) -> None:
    worker.assign(waits=2)
    worker.await_current({f"a.b/waits/{n}": "ONLINE" for n in range(2)})
    worker.command("suspend")
    os.kill(worker.pid_of_slot(0), signal.SIGKILL)
    eventually(
        lambda: (
            worker.status()["slots"][0]["run"] > 1
            and "waits for the driver" in worker.status()["partitions"]["a.b/waits/0"]["reason"]
        ),
        ONLINE_S,
        "the new copier waits",
    )
    worker.command("restore")
    worker.await_current({f"a.b/waits/{n}": "ONLINE" for n in range(2)})


def test_pages(worker: StubWorker) -> None:
    worker.assign(shown=1)
    worker.await_current({"a.b/shown/0": "ONLINE"})
    metrics = worker.page("/metrics").text
    assert 'ureplicator_worker_partitions{fleet="test",state="ONLINE"} 1.0' in metrics
    assert "ureplicator_worker_latency_seconds_bucket" in metrics
    assert worker.page("/health").status_code == 200
    assert worker.page("/nothing").status_code == 404
    live = worker.command("seen")["live"]
    assert live["port"] == worker.port
    assert live["slots"] == 2
    assert requests.get(worker.status()["sparkUi"], timeout=10).status_code == 200


def test_sigterm_releases_then_ends(shared: StubWorker) -> None:
    """The last one that the shared worker serves."""
    worker = shared
    worker.assign(slow=2)
    worker.await_current({"a.b/slow/0": "ONLINE", "a.b/slow/1": "ONLINE"})
    assert worker.process.terminate(10) == 0
    worker.process.assert_tree_gone(2)
    log = worker.process.log_text()
    assert "a.b/slow/0@1: released" in log
    assert "exit 0: drained" in log


def test_a_dead_jvm_ends_the_worker_and_every_copier(own: Callable[..., StubWorker]) -> None:
    """A frozen one, too."""
    worker = own()
    worker.assign(t=2)
    worker.await_current({"a.b/t/0": "ONLINE", "a.b/t/1": "ONLINE"})
    os.kill(worker.pid_of_slot(0), signal.SIGSTOP)
    worker.jvm().kill()
    assert worker.process.wait(8) == 1
    worker.process.assert_tree_gone(2)
    assert "worker w: the JVM ended with code -9" in worker.process.log_text()
    assert "Traceback" not in worker.process.log_text(), worker.process.log_text()


def test_a_killed_driver_leaves_nothing_behind(own: Callable[..., StubWorker]) -> None:
    worker = own()
    worker.assign(t=2)
    worker.await_current({"a.b/t/0": "ONLINE", "a.b/t/1": "ONLINE"})
    os.kill(worker.pid_of_slot(1), signal.SIGSTOP)
    assert len(worker.process.tree()) >= 5
    worker.process.send(signal.SIGKILL)
    worker.process.assert_tree_gone(10)


def test_a_copier_that_does_not_drain_is_killed_in_the_end(own: Callable[..., StubWorker]) -> None:
    worker = own()
    worker.assign(t=2)
    worker.await_current({"a.b/t/0": "ONLINE", "a.b/t/1": "ONLINE"})
    os.kill(worker.pid_of_slot(0), signal.SIGSTOP)
    assert worker.process.terminate(20) == 1
    worker.process.assert_tree_gone(2)
    assert "exit 1: not drained in time" in worker.process.log_text()


def test_a_silent_copier_and_a_loop_that_stands_still_are_ended(
    own: Callable[..., StubWorker],
) -> None:
    worker = own(watchdog_s=2)
    worker.assign(t=2)
    online = {"a.b/t/0": "ONLINE", "a.b/t/1": "ONLINE"}
    worker.await_current(online)
    os.kill(worker.pid_of_slot(0), signal.SIGSTOP)
    eventually(
        lambda: "silent" in worker.current()["a.b/t/0"]["reason"],
        8,
        "the silence is published",
        poll_s=0.01,
    )
    worker.await_current(online)
    worker.command("frozen")
    assert worker.process.wait(10) == 1
    worker.process.assert_tree_gone(2)
    assert "worker w: no step for 2 s" in worker.process.log_text()


def test_a_taken_port_and_a_missing_java_are_one_line_each(tmp_path: Path) -> None:
    env = {"PYTHONPATH": _python_path(), "JAVA_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "ureplicator_testkit.fleet.stub_worker"]
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        taken = Process("taken", [*command, str(port), "1", "9"], log=tmp_path / "taken", env=env)
        assert taken.wait(20) == 1
    missing = Process("missing", [*command, "0", "1", "9"], log=tmp_path / "missing", env=env)
    assert missing.wait(20) == 1
    assert (
        f"worker w: cannot listen on 127.0.0.1:{port}: Address already in use" in taken.log_text()
    )
    assert "worker w: Java is missing" in missing.log_text()
    for process in (taken, missing):
        assert "Traceback" not in process.log_text()
        process.kill_tree()


def _at_once(worker: StubWorker) -> None:
    """Its handlers are set, and nothing else is there."""


def _with_a_jvm(worker: StubWorker) -> None:
    def launched() -> bool:
        worker.process.assert_running()
        return any("org.apache.spark.deploy.SparkSubmit" in line for line in _commands(worker))

    eventually(launched, START_S, "the JVM is launched")


def _with_a_connected_jvm(worker: StubWorker) -> None:
    """The context is created next."""

    def connected() -> bool:
        worker.process.assert_running()
        ports = [c for c in psutil.Process(worker.process.pid).net_connections() if c.raddr]
        return any(
            c.raddr.port != worker.control_port
            for c in ports
            if c.laddr.port != worker.control_port
        )

    eventually(connected, START_S, "the JVM is connected")


def _commands(worker: StubWorker) -> Iterator[str]:
    for pid in worker.process.tree():
        with contextlib.suppress(psutil.Error):
            yield " ".join(psutil.Process(pid).cmdline())


@pytest.mark.parametrize(
    ("moment", "number", "to_group"),
    [
        (_at_once, signal.SIGTERM, False),
        (_at_once, signal.SIGINT, True),
        (_with_a_jvm, signal.SIGTERM, True),
        (_with_a_jvm, signal.SIGINT, True),
        (_with_a_connected_jvm, signal.SIGTERM, False),
        (_with_a_connected_jvm, signal.SIGTERM, True),
    ],
)
def test_a_worker_that_is_stopped_while_it_starts_ends_at_once(
    tmp_path: Path,
    moment: Callable[[StubWorker], None],
    number: signal.Signals,
    to_group: bool,
) -> None:
    worker = StubWorker(tmp_path / "worker.log")
    try:
        moment(worker)
        (os.killpg if to_group else os.kill)(worker.process.pid, number)
        assert worker.process.wait(20) == 0
        worker.process.assert_tree_gone()
        assert "Traceback" not in worker.process.log_text()
    finally:
        worker.close()
