"""Starts of Spark that are refused in one line, a secret that no property carries, and the JVM's output."""

from __future__ import annotations

import gc
import logging
import socket
import socketserver
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark import SparkContext

from ureplicator_common.errors import PermanentError
from ureplicator_testkit.spark.engines import idle_engine
from ureplicator_worker.auditor.session import AuditorSession
from ureplicator_worker.engines import jvm
from ureplicator_worker.lifeline.server import LifelineServer

SECRET = "the secret of the cluster"  # noqa: S105
BROKEN = "BrokenPipeError: [Errno 32] Broken pipe"

left_open = pytest.mark.filterwarnings("ignore::ResourceWarning")
"""pyspark leaves the standard input of a JVM open that ends at once."""


def test_spark_submit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gateway has no process there that the worker could wait for or end."""
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    with pytest.raises(PermanentError, match=r"cannot run under spark-submit: start it") as caught:
        idle_engine("local[2]").start()
    assert "\n" not in str(caught.value)


def test_a_secret_is_read_without_the_end_of_its_line(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(f"{SECRET}\n")
    assert jvm.read_secret(file) == SECRET


class EndedContext:
    """A context whose JVM has ended since it was made."""

    def parallelize(self, *_: object) -> None:
        raise Py4JNetworkError("Answer from Java side is empty")


def test_a_jvm_that_ends_while_spark_starts_is_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended = SimpleNamespace(context=EndedContext(), stop=lambda: None)
    monkeypatch.setattr(jvm, "start_driver", lambda *_, **__: ended)
    monkeypatch.setattr(jvm, "silence_py4j", lambda _: None)
    with pytest.raises(PermanentError) as caught:
        idle_engine("local[1]").start()
    assert str(caught.value) == (
        "Spark ends while it starts: Py4JNetworkError: Answer from Java side is empty"
    )


@pytest.mark.parametrize("content", [None, b"", b" \n", b"\xff\xfe"])
def test_a_file_without_a_secret_is_named(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "secret"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(PermanentError, match=rf"worker.spark_secret_file {file}: ") as caught:
        idle_engine("spark://127.0.0.1:1", file).start()
    assert "\n" not in str(caught.value)


def test_the_list_of_processes_does_not_show_the_secret(tmp_path: Path) -> None:
    """The properties of the configuration are the arguments of the JVM."""
    file = tmp_path / "secret"
    file.write_text(SECRET)
    spark = idle_engine("spark://127.0.0.1:1", file)
    assert SECRET not in str(spark._configuration(tmp_path).getAll())
    assert spark._secret() == {"spark.authenticate.secret": SECRET}


@pytest.mark.parametrize("master", ["local[2]", "k8s://https://h"])
def test_only_a_standalone_cluster_has_the_secret_as_a_property(master: str) -> None:
    """Kubernetes' driver reads the file by itself, and a local one needs none."""
    assert idle_engine(master, "/no/such/file")._secret() == {}


def test_a_fixed_lifeline_port_is_used_or_missed_in_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PermanentError, match=rf"127.0.0.1:{port}: .*worker.lifeline_port"):
            LifelineServer(host="127.0.0.1", port=port)
    server = LifelineServer(host="127.0.0.1", port=port)
    assert server.address[1] == port
    server.close()


@pytest.fixture
def broken_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A Java that passes the check of its version, and ends with an error as soon as it is to run Spark."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(
        '#!/bin/sh\n[ "$1" = -version ] && { echo \'openjdk version "21"\' >&2; exit 0; }\n'
        f'echo "WARNING: Using incubator modules" >&2\necho "{BROKEN}" >&2\nexit 1\n'
    )
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    yield
    gc.collect()  # what `left_open` allows, before another test


@left_open
@pytest.mark.usefixtures("broken_java")
def test_output_of_an_audits_jvm_is_logged(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """The log has also what Spark's Python processes write when the JVM ends: it is no message to a user."""
    caplog.set_level(logging.INFO)
    session = AuditorSession(name="a", properties={}, on_failed=lambda _: None)
    with pytest.raises(PermanentError, match="BrokenPipeError"):
        session.start()
    assert ("INFO", f"jvm: {BROKEN}") in [
        (record.levelname, record.message) for record in caplog.records
    ]
    assert "incubator" not in caplog.text
    assert BROKEN not in capfd.readouterr().err


@left_open
@pytest.mark.usefixtures("broken_java")
def test_output_of_a_workers_jvm_goes_to_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(PermanentError, match="BrokenPipeError"):
        idle_engine("local[1]").start()
    written = capfd.readouterr().err
    assert f"{BROKEN}\n" in written
    assert "incubator" not in written


class _Gateway:
    """Takes the login that py4j would pass on to Hadoop."""

    def __init__(self) -> None:
        self.jvm = self
        self.logins: list[str] = []

    def __getattr__(self, name: str) -> _Gateway:
        return self

    def createRemoteUser(self, name: str) -> str:  # of Hadoop
        return name

    def setLoginUser(self, user: str) -> None:
        self.logins.append(user)


def test_a_user_without_a_name_has_a_home_and_a_login(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Spark would end with `basedir must be absolute: ?/.ivy2`, then with `invalid null input: name`."""
    assert "user.home" not in jvm.java_options(tmp_path)
    monkeypatch.setattr("os.getuid", lambda: 3_999_999_999)
    assert not jvm.has_user_name()
    assert f"-Duser.home={tmp_path} -Dmine=1" in jvm.java_options(tmp_path, "-Dmine=1")
    gateway = _Gateway()
    jvm._log_in(gateway)
    assert gateway.logins == ["uid3999999999"]


@pytest.mark.parametrize("resolves", [True, False])
def test_a_host_whose_name_has_no_address_is_named_to_spark(
    monkeypatch: pytest.MonkeyPatch, resolves: bool
) -> None:
    found = {"h": "127.0.0.1"} if resolves else {}

    def look_up(name: str) -> str:
        try:
            return found[name]
        except KeyError:
            raise socket.gaierror(-2, "Name or service not known") from None

    environ = {"OTHER": "x"}
    monkeypatch.setattr("socket.gethostname", lambda: "h")
    monkeypatch.setattr("socket.gethostbyname", look_up)
    jvm.name_host(environ, "127.0.0.1")
    assert environ.get("SPARK_LOCAL_HOSTNAME") == (None if resolves else "127.0.0.1")


def test_a_host_name_that_no_resolver_takes_is_named_to_spark(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A label of more than 63 characters: Python refuses it before it asks."""
    environ: dict[str, str] = {}
    monkeypatch.setattr("socket.gethostname", lambda: "h" * 64)
    jvm.name_host(environ, "127.0.0.1")
    assert environ == {"SPARK_LOCAL_HOSTNAME": "127.0.0.1"}


class HangingJvm:
    """A JVM that hangs with its context until it is killed; then the context fails."""

    stdin = None

    def __init__(self) -> None:
        self.killed, self.gateway_ended = threading.Event(), threading.Event()
        self._accumulatorServer = socketserver.TCPServer(
            ("127.0.0.1", 0), socketserver.BaseRequestHandler
        )
        self.accumulating = threading.Thread(target=self._accumulatorServer.serve_forever)
        self.accumulating.start()

    def shutdown(self) -> None:
        """Stop as the gateway does."""
        self.gateway_ended.set()

    def poll(self) -> int | None:
        return -9 if self.killed.is_set() else None

    def kill(self) -> None:
        self.killed.set()

    def wait(self, timeout_s: float | None = None) -> int:
        if not self.killed.is_set():
            assert timeout_s is not None
            raise subprocess.TimeoutExpired("java", timeout_s)
        return -9

    def stop(self) -> None:
        """Stop as `SparkContext.stop` does."""
        assert self.killed.wait(60)
        raise RuntimeWarning("Unable to cleanly shutdown Spark JVM process")


def test_after_a_jvm_that_hung_another_driver_may_be_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """pyspark keeps a context in its class, and its threads, unless its end succeeds."""
    hanging: Any = HangingJvm()
    monkeypatch.setattr(jvm, "STOP_TIMEOUT_S", 0.01)
    monkeypatch.setattr(SparkContext, "_active_spark_context", hanging)
    gateway = SimpleNamespace(proc=hanging, shutdown=hanging.shutdown)
    jvm.Driver(hanging, gateway).stop()
    assert SparkContext._active_spark_context is None
    hanging.accumulating.join(60)
    hanging._accumulatorServer.server_close()
    assert not hanging.accumulating.is_alive()
    assert hanging.gateway_ended.is_set()
