"""A JVM that is watched whatever else hangs."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from ureplicator_testkit.spark.engines import idle_engine
from ureplicator_worker.engines import spark

MASTER = "spark://127.0.0.1:1"


class QueriedContext:
    """A SparkContext that counts the queries for its state."""

    def __init__(self) -> None:
        self.queries = 0
        self.changed = threading.Condition()
        self._jsc = self

    def sc(self) -> QueriedContext:
        return self

    schedulerBackend = sc

    def isStopped(self) -> bool:
        with self.changed:
            self.queries += 1
            self.changed.notify_all()
        return False

    def totalCoreCount(self) -> int:
        return 0


def test_a_probe_of_masters_that_hangs_does_not_keep_the_jvm_from_being_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The resolution of a name may take minutes; the JVM would be taken for dead."""
    hanging, released = threading.Event(), threading.Event()

    class HangingProbe:
        def __init__(self, **_: Any) -> None:
            """Of any cluster."""

        def missing(self, cores: int) -> str:
            hanging.set()
            released.wait()
            return ""

    monkeypatch.setattr(spark, "CapacityProbe", HangingProbe)
    monkeypatch.setattr(spark, "PROBE_EVERY_S", 0.001)
    watched, context = idle_engine(MASTER), QueriedContext()
    watched._context, watched._scratch, watched._silence_s = context, tmp_path, 3_600.0  # type: ignore[assignment]
    watching = threading.Thread(target=watched._probe, name="worker jvm-probe")
    watching.start()
    try:
        assert hanging.wait(60)
        with context.changed:
            seen = context.queries
            assert context.changed.wait_for(lambda: context.queries > seen + 3, 20)
    finally:
        watched._stopping = True
        released.set()
        watching.join(60)
