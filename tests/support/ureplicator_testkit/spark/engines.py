"""Several JVMs of Spark in one process, one after the other; a role has one for its life."""

import contextlib
import os
import queue
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark import SparkContext

from ureplicator_worker.core.events import CapacityChanged, CopierPlaced, Event
from ureplicator_worker.engines.spark import SparkEngine
from ureplicator_worker.lifeline.messages import CopierConfig, CopierId, Hello
from ureplicator_worker.lifeline.server import LifelineServer

STUB = "ureplicator_testkit.copier.stub_copier:copy"


def stub_properties() -> dict[str, str]:
    """Properties with which the Python processes of Spark find `STUB`, where nothing else leads to it."""
    return {"spark.executorEnv.PYTHONPATH": os.pathsep.join(sys.path)}


def idle_engine(master: str, secret_file: Path | str = "") -> SparkEngine:
    """An engine of one slot whose callbacks do nothing."""

    def ignore(*_: object) -> None:
        """No copier is started."""

    return SparkEngine(
        name="w",
        slots=1,
        properties={"spark.master": master},
        secret_file=str(secret_file),
        put=ignore,
        on_job_ended=ignore,
        on_jvm_failed=ignore,
        silence_s=1.0,
    )


def stub_config(lifeline: LifelineServer, copier: CopierId) -> CopierConfig:
    """Configuration of a copier that copies nothing."""
    return CopierConfig(
        fleet="f",
        worker="w",
        slot=copier.slot,
        run=copier.run,
        host="127.0.0.1",
        port=lifeline.address[1],
        token=lifeline.admit(copier),
        clusters={},
        commit_interval_s=1.0,
        transaction_interval_s=0.1,
        buffer_bytes=16 << 20,
        silence_s=60.0,
    )


@dataclass(frozen=True, slots=True)
class Stubs:
    """First messages of the stubs of an engine, and what ended of them."""

    hellos: queue.SimpleQueue[Hello]
    ended: list[object]


@contextmanager
def running_stubs(properties: Mapping[str, str], *, slots: int) -> Iterator[Stubs]:
    """An engine with a copier of `STUB` in each slot; both are ended at the end."""
    stubs = Stubs(queue.SimpleQueue(), [])
    lifeline = LifelineServer(host="127.0.0.1")
    lifeline.start(
        lambda _, message: stubs.hellos.put(message) if isinstance(message, Hello) else None
    )

    def put(event: Event) -> None:
        if not isinstance(event, CopierPlaced | CapacityChanged):
            stubs.ended.append(event)

    engine = SparkEngine(
        name="stubs",
        slots=slots,
        properties=properties,
        put=put,
        on_job_ended=lifeline.revoke,
        on_jvm_failed=stubs.ended.append,
        silence_s=60,
    )
    try:
        engine.start()
        for slot in range(slots):
            copier = CopierId(slot, 1)
            engine.start_copier(copier, stub_config(lifeline, copier), f"slot {slot}")
        yield stubs
    finally:
        lifeline.close()
        stop(engine)


def stop(engine: SparkEngine) -> None:
    engine.stop()
    forget_jvm()


def forget_jvm() -> None:
    """Have pyspark start another JVM next time: it keeps the gateway of a process, also one that has ended.

    Nothing is done while a context is active.
    """
    gateway: Any = SparkContext._gateway
    if SparkContext._active_spark_context is None and gateway is not None:
        with contextlib.suppress(Exception):  # of a JVM that is gone
            gateway.shutdown()
        if gateway.proc.stdin:
            gateway.proc.stdin.close()
        SparkContext._gateway = SparkContext._jvm = None
