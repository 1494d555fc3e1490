"""Cost of an auditor that follows behind a copy, beside that of the worker that copies.

A producer sends `PER_S` records of 1,000 bytes a second to one topic of two partitions. The auditor has
compared the topic before its processor time counts, and its JVM, which has compared the first records, has
ended: it does so after `IDLE_S` here, and after minutes by default. The age of the oldest
comparison is read every second, and in the end how many of the offsets were compared.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ureplicator_bench.figures import Figure
from ureplicator_bench.load import Filler, Profile
from ureplicator_bench.servers import Servers, running
from ureplicator_bench.usage import OwnTimes
from ureplicator_common.model import Delivery
from ureplicator_testkit.fleet.real_fleet import Fleet
from ureplicator_testkit.records.topics import create_topic
from ureplicator_testkit.servers.processes import Process, eventually, spawn_ureplicator

PER_S = 5_000
PORTIONS_PER_S = 10
PROFILE = Profile("audit", records=0, size=1_000, partitions=2)
MEASURED_S = 62.0
"""Two passes, which are 30 s apart."""
IDLE_S = 20.0
WARM_UP_S = 65.0
LIVE_S = 120.0
AUDITED_S = 120.0
POLL_S = 0.5
MAX_PERCENT = 5.0
MAX_AGE_S = 60.0


def figures(folder: Path, *, progress: Callable[[str], None]) -> Iterator[Figure]:
    """Figures of both deliveries, each with a fleet of its own."""
    with running(folder) as servers:
        for delivery in Delivery:
            progress(f"{delivery}: {PER_S:,} records/s, {WARM_UP_S + MEASURED_S:.0f} s")
            with _copied_and_followed(servers, folder, delivery) as (fleet, auditor, topic):
                yield from _measured(delivery, fleet, auditor, topic)


@contextmanager
def _copied_and_followed(
    servers: Servers, folder: Path, delivery: Delivery
) -> Iterator[tuple[Fleet, Process, str]]:
    name = f"bench-audit-{delivery.value.replace('_', '-')}"
    fleet = Fleet(
        name=name,
        folder=folder,
        zookeeper=servers.zookeeper.hosts,
        source=servers.source.bootstrap,
        target=servers.target.bootstrap,
        route={"delivery": delivery.value, "audit": {"continuous": True}},
    )
    auditor = None
    try:
        fleet.start()
        auditor = _auditor(fleet, folder)
        create_topic(servers.source.bootstrap, name, partitions=PROFILE.partitions)
        fleet.whitelist(name)
        fleet.wait_online(name, PROFILE.partitions)
        with _producing(servers.source.bootstrap, name):
            yield fleet, auditor, name
    finally:
        if auditor is not None:
            auditor.kill_tree()
        fleet.kill()


def _auditor(fleet: Fleet, folder: Path) -> Process:
    process = spawn_ureplicator(
        *("auditor", fleet.config_of("a1"), "--id", "a1", "--set", f"audit.idle_spark_s={IDLE_S}"),
        log=folder / "auditor.log",
        name="a1",
    )
    eventually(lambda: "a1" in fleet.rest("GET", "/audits")["auditors"], LIVE_S, "a1 is live")
    return process


@contextmanager
def _producing(bootstrap: str, topic: str) -> Iterator[None]:
    """Produce at the same speed for as long as the block runs."""
    filler = Filler(bootstrap, topic, PROFILE)
    over = threading.Event()

    def produce() -> None:
        due_s = time.monotonic()
        while not over.wait(max(0.0, due_s - time.monotonic())):
            filler.send(PER_S // PORTIONS_PER_S)
            due_s += 1 / PORTIONS_PER_S

    thread = threading.Thread(target=produce, name="producer", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _measured(delivery: Delivery, fleet: Fleet, auditor: Process, topic: str) -> Iterator[Figure]:
    eventually(lambda: _audit(fleet, topic)["verifiedAt"], AUDITED_S, "the topic is compared")
    time.sleep(WARM_UP_S)
    used = [OwnTimes(process) for process in (auditor, fleet.workers["w1"])]
    before = [process.see() for process in used]
    oldest_s, end_s = 0.0, time.monotonic() + MEASURED_S
    while time.monotonic() < end_s:
        time.sleep(POLL_S)
        after = [process.see() for process in used]
        oldest_s = max(oldest_s, _audit(fleet, topic)["secondsSinceVerified"])
    audit_s, copy_s = (b - a for a, b in zip(before, after, strict=True))
    shown = _audit(fleet, topic)
    assert not shown["differences"], shown
    yield Figure(f"{delivery}: auditor, JVM included", audit_s, "CPU-s")
    yield Figure(f"{delivery}: worker, JVM included", copy_s, "CPU-s")
    yield Figure(f"{delivery}: auditor of worker", audit_s / copy_s * 100, "%", MAX_PERCENT)
    yield Figure(f"{delivery}: compared", shown["coverage"] * 100, "%")
    yield Figure(f"{delivery}: age of the oldest comparison", oldest_s, "s", MAX_AGE_S)


def _audit(fleet: Fleet, topic: str) -> dict[str, Any]:
    found: dict[str, Any] = fleet.rest("GET", f"/audits/{topic}")
    return found
