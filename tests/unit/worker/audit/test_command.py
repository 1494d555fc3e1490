"""The command's own decisions: what cannot be resumed, and failures of Spark."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.serializers import UTF8Deserializer

from ureplicator_common.errors import PermanentError
from ureplicator_worker.audit.result import AuditRequest, AuditResult
from ureplicator_worker.auditor import command
from ureplicator_worker.auditor.command import (
    interruptible,
    refuse_other_machines,
    refuse_other_topics,
    spark_session,
)

FORMER = AuditResult("a.b", "t", "t", (), source_topic_id="s", target_topic_id="d")
REQUEST = AuditRequest("a.b", "t", "t", (), source_topic_id="s", target_topic_id="d")


@pytest.mark.parametrize(
    ("source", "target", "sides"),
    [
        ("new", "d", "the source topic was remade"),
        ("s", "new", "the target topic was remade"),
        ("new", "new", "the source and the target topic was remade"),
    ],
)
def test_a_result_of_a_topic_that_was_remade_is_not_resumed(
    source: str, target: str, sides: str
) -> None:
    request = AuditRequest("a.b", "t", "t", (), source_topic_id=source, target_topic_id=target)
    with pytest.raises(PermanentError, match=f"results cannot be resumed: {sides} since"):
        refuse_other_topics(FORMER, request, Path("results"))


def test_a_result_of_the_same_topics_is_resumed() -> None:
    refuse_other_topics(FORMER, REQUEST, Path("results"))
    refuse_other_topics(AuditResult("a.b", "t", "t", ()), REQUEST, Path("results"))


@pytest.mark.parametrize("master", ["spark://h:7077", "k8s://https://h", "yarn"])
def test_a_cluster_is_refused_before_spark_starts(master: str) -> None:
    with (
        pytest.raises(PermanentError, match=f"--master {master}: an audit runs on this machine"),
        spark_session({"spark.master": master}),
    ):
        pytest.fail("Spark was started")


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]"])
def test_this_machine_is_accepted(master: str) -> None:
    refuse_other_machines(master)


class Session:
    """A session of Spark whose JVM lives on."""

    def __init__(self, **_: object) -> None:
        self.closed = False

    def start(self) -> SimpleNamespace:
        return SimpleNamespace(sparkContext=None)

    def wait_failed(self, timeout_s: float) -> None:
        """Wait for a failure that does not come."""

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def no_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "AuditorSession", Session)
    monkeypatch.setattr(command, "silence_py4j", lambda context: None)


@pytest.mark.usefixtures("no_jvm")
def test_an_error_of_a_file_is_not_one_of_spark() -> None:
    with (
        pytest.raises(PermanentError, match=r"^the audit failed: .*No such file.*/nowhere/file"),
        spark_session({"spark.master": "local"}),
    ):
        Path("/nowhere/file").read_bytes()


class Broken:
    def read(self, _: int) -> bytes:
        raise ConnectionResetError("connection reset by peer")


@pytest.mark.usefixtures("no_jvm")
def test_an_error_of_a_connection_to_spark_is_one_of_spark() -> None:
    with (
        pytest.raises(PermanentError, match=r"^Spark failed: ConnectionResetError: connection"),
        spark_session({"spark.master": "local"}),
    ):
        UTF8Deserializer().loads(Broken())  # type: ignore[no-untyped-call]


def interrupt(times: int) -> int:
    """Interrupts that the block came past."""
    past = 0
    try:
        with interruptible():
            for _ in range(times):
                signal.raise_signal(signal.SIGINT)
                past += 1
    except KeyboardInterrupt:
        return past
    pytest.fail("it was not interrupted")


def test_the_first_interrupt_waits_for_a_look_and_the_second_does_not() -> None:
    before = signal.getsignal(signal.SIGINT)
    assert interrupt(1) == 1
    assert interrupt(2) == 1
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interrupt_is_seen_by_the_next_look() -> None:
    with interruptible() as check:
        check()
    with pytest.raises(KeyboardInterrupt), interruptible() as check:
        interrupted(check)


def interrupted(check: Callable[[], None]) -> None:
    signal.raise_signal(signal.SIGINT)
    check()
    pytest.fail("the look saw nothing")
