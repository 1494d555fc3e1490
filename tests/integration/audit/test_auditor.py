"""An auditor on real servers: a requested audit, records that the target lost, and a pass behind the copy."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ureplicator_common.kafka import Position
from ureplicator_common.kafka.client import ClusterClient
from ureplicator_common.kafka.positions import PositionStore
from ureplicator_common.kafka.provenance import Provenance, SameOffsets
from ureplicator_common.kafka.transactions.position_rows import all_readable
from ureplicator_testkit.fleet.auditors import start_auditor
from ureplicator_testkit.fleet.real_fleet import FORTH_QUERY, Fleet
from ureplicator_testkit.records.topics import (
    NewRecord,
    create_topic,
    produce,
)
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.processes import Process, eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]

PARTITIONS = 2
AUDITED_S = 90.0
FOLLOWED_S = 120.0


@pytest.fixture(scope="module")
def following_fleet(
    new_fleet: Callable[..., Fleet], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Fleet]:
    """One for all tests."""
    folder = tmp_path_factory.mktemp("followed")
    route = {"audit": {"continuous": True}, "delivery": "exactly_once", "offsets": "same"}
    with new_fleet(name="followed", folder=folder, route=route) as fleet:
        yield fleet.start()


@pytest.fixture
def topic(following_fleet: Fleet, source_cluster: KafkaCluster, unique_name: str) -> Iterator[str]:
    """A topic that is copied during the test."""
    create_topic(source_cluster.bootstrap, unique_name, partitions=PARTITIONS)
    following_fleet.whitelist(unique_name)
    yield unique_name
    following_fleet.rest("DELETE", f"/topics/{unique_name}?{FORTH_QUERY}")


@pytest.fixture
def auditor(following_fleet: Fleet, tmp_path: Path) -> Iterator[Process]:
    process = start_auditor(following_fleet, "a1", tmp_path)
    try:
        yield process
        assert process.terminate(30) == 0, process.log_tail()
        process.assert_tree_gone()
    finally:
        process.kill_tree()


def fill(cluster: KafkaCluster, topic: str, first: int, count: int) -> None:
    records = [
        NewRecord(b"%d" % index, b"k%d" % index, number)
        for number in range(PARTITIONS)
        for index in range(first, first + count)
    ]
    produce(cluster.bootstrap, topic, records)


def audit_of(fleet: Fleet, topic: str) -> Any:
    return fleet.rest("GET", f"/audits/{topic}")


def history_of_audits(fleet: Fleet) -> Any:
    return fleet.rest("GET", "/history?kind=audit")["history"]


def wait_copied(fleet: Fleet, topic: str, position: int) -> None:
    def copied() -> bool:
        shown = fleet.rest("GET", f"/positions/{topic}")["partitions"]
        return all((partition["position"] or 0) >= position for partition in shown)

    eventually(copied, 60, f"{topic} is copied up to {position}")


def requested(fleet: Fleet, topic: str) -> Any:
    """The last run, once the audit that is requested here has ended."""
    id = fleet.rest("POST", f"/audits/{topic}", json={})["request"]

    def ended() -> bool:
        last = audit_of(fleet, topic)["last"]
        return last is not None and last["id"] == id

    eventually(ended, AUDITED_S, f"audit {id} has ended")
    return audit_of(fleet, topic)["last"]


def test_requested_audits_and_one_behind_the_copy(
    following_fleet: Fleet,
    auditor: Process,
    source_cluster: KafkaCluster,
    target_cluster: KafkaCluster,
    topic: str,
) -> None:
    fill(source_cluster, topic, 0, 500)
    wait_copied(following_fleet, topic, 500)

    last = requested(following_fleet, topic)
    assert (last["outcome"], last["records"], last["differences"]) == ("done", 1_000, {})
    shown = audit_of(following_fleet, topic)
    assert (shown["state"], shown["requested"], shown["running"]) == ("verified", None, None)
    assert json.loads(Path(last["report"]).read_text())["state"] == "equal"
    assert last["id"] in eventually(
        lambda: {event["request"] for event in history_of_audits(following_fleet)},
        AUDITED_S,
        "the leader has noted the audit",
    )

    fill(source_cluster, topic, 500, 300)
    began_s = time.monotonic()
    wait_copied(following_fleet, topic, 800)
    eventually(
        lambda: [part["to"] for part in audit_of(following_fleet, topic)["verified"]] == [800, 800],
        FOLLOWED_S,
        "the new records are verified",
    )
    print(f"verified {time.monotonic() - began_s:.1f} s after they were produced")
    shown = audit_of(following_fleet, topic)
    assert (shown["state"], shown["coverage"], shown["behindOffsets"]) == ("verified", 1.0, 0)
    assert following_fleet.rest("GET", "/audits")["followers"] == {"source.target": "a1"}

    produce(target_cluster.bootstrap, topic, [NewRecord(b"of another producer", b"k", 0)])
    fill(source_cluster, topic, 800, 10)
    wait_copied(following_fleet, topic, 810)
    last = requested(following_fleet, topic)
    shown = audit_of(following_fleet, topic)
    assert last["differences"] == {"foreign": 1}, shown
    assert shown["state"] == "differences found"
    assert {finding["partition"] for finding in shown["findings"]} == {0}
    assert history_of_audits(following_fleet)


def test_the_jvm_ends_when_idle_and_the_next_audit_starts_one(
    following_fleet: Fleet, source_cluster: KafkaCluster, topic: str, tmp_path: Path
) -> None:
    fill(source_cluster, topic, 0, 200)
    wait_copied(following_fleet, topic, 200)
    process = start_auditor(following_fleet, "a1", tmp_path, "audit.idle_spark_s=5")
    try:
        for _ in range(2):
            eventually(lambda: not jvms_of(process), AUDITED_S, "the JVM has ended")
            last = requested(following_fleet, topic)
            assert (last["outcome"], last["records"], last["differences"]) == ("done", 400, {})
            assert jvms_of(process)
        assert process.terminate(30) == 0, process.log_tail()
        process.assert_tree_gone()
    finally:
        process.kill_tree()


def jvms_of(process: Process) -> list[int]:
    found = []
    for pid in process.tree():
        with suppress(OSError):  # it has ended meanwhile
            if Path(f"/proc/{pid}/comm").read_text() == "java\n":
                found.append(pid)
    return found


def test_the_request_of_a_killed_auditor_is_taken_over(
    following_fleet: Fleet,
    source_cluster: KafkaCluster,
    topic: str,
    tmp_path: Path,
) -> None:
    large = [NewRecord(b"v" * 2_000, b"k", number) for number in range(PARTITIONS)] * 1_000
    produce(source_cluster.bootstrap, topic, large)
    wait_copied(following_fleet, topic, 1_000)
    first = start_auditor(following_fleet, "a1", tmp_path)
    try:
        slow = {"bytesPerSecond": 10_000}
        following_fleet.rest("POST", f"/audits/{topic}", json=slow)
        wait_running(following_fleet, topic, "a1")
    finally:
        first.kill_tree()
    other = start_auditor(following_fleet, "a2", tmp_path)
    try:
        wait_running(following_fleet, topic, "a2")
        eventually(
            lambda: 0 < audit_of(following_fleet, topic)["running"]["compared"] < 2_000,
            AUDITED_S,
            "progress is shown",
        )
        began_s = time.monotonic()
        following_fleet.rest("DELETE", f"/audits/{topic}")
        eventually(
            lambda: (audit_of(following_fleet, topic)["last"] or {}).get("outcome") == "cancelled",
            AUDITED_S,
            "the audit is cancelled",
        )
        print(f"cancelled {time.monotonic() - began_s:.2f} s after the request")
        assert audit_of(following_fleet, topic)["last"]["records"] > 0
        assert other.terminate(30) == 0, other.log_tail()
        other.assert_tree_gone()
    finally:
        other.kill_tree()


def wait_running(fleet: Fleet, topic: str, auditor: str) -> None:
    eventually(
        lambda: (audit_of(fleet, topic)["running"] or {}).get("auditor") == auditor,
        AUDITED_S,
        f"{auditor} carries the audit out",
    )


def claim_shift(fleet: Fleet, cluster: KafkaCluster, topic: str, shift: int) -> None:
    """Have the positions say that all records lie so much higher at the target."""
    with closing(ClusterClient(cluster.bootstrap)) as client:
        store = PositionStore(client, group=fleet.group(), transactional_id=f"{topic} of the test")
        store.initialise()
        stored = all_readable(store.read({topic: range(PARTITIONS)}))
        store.commit({key: _shifted(position, shift) for key, position in stored.items()})
        store.wait_for_markers()


def _shifted(position: Position, shift: int) -> Position:
    written = Provenance.decode(position.metadata)
    assert written is not None
    assert written.same == SameOffsets(0)
    lie = replace(written, same=SameOffsets(0, shift))
    return replace(position, metadata=lie.encode())


def test_an_audit_from_a_terminal_is_recorded(
    following_fleet: Fleet,
    source_cluster: KafkaCluster,
    target_cluster: KafkaCluster,
    topic: str,
    tmp_path: Path,
) -> None:
    """An auditor goes on from there, and finds records that lie elsewhere than the positions say."""
    fill(source_cluster, topic, 0, 200)
    wait_copied(following_fleet, topic, 200)
    config = following_fleet.config_of("c1")
    command = [sys.executable, "-m", "ureplicator_cli.main", "audit", str(config), "--topic", topic]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)  # noqa: S603
    assert (done.returncode, done.stderr) == (0, "")
    shown = audit_of(following_fleet, topic)
    assert (shown["state"], shown["last"]["records"]) == ("verified", 400)
    assert shown["last"]["auditor"].startswith("command on ")

    fill(source_cluster, topic, 200, 100)
    wait_copied(following_fleet, topic, 300)
    claim_shift(following_fleet, target_cluster, topic, 1)
    process = start_auditor(following_fleet, "a1", tmp_path)
    try:
        eventually(
            lambda: audit_of(following_fleet, topic)["differences"] == {"shifted": 200},
            FOLLOWED_S,
            "the new records are found elsewhere",
        )
        shown = audit_of(following_fleet, topic)
        assert shown["state"] == "differences found"
        places = {
            (row["kind"], row["sourceOffset"], row["targetOffset"]) for row in shown["findings"]
        }
        assert ("shifted", 200, 200) in places
        assert process.terminate(30) == 0, process.log_tail()
    finally:
        process.kill_tree()
