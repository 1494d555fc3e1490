"""Exports on real processes: a fleet whose ZooKeeper was wiped goes on where it was, and an operator's
request is found in every log that it led to."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
import requests

from ureplicator_common.coordination import Coordination, Delete
from ureplicator_common.coordination.zookeeper import ZooKeeperCoordination
from ureplicator_common.znodes.paths import Paths
from ureplicator_testkit.control.command import run
from ureplicator_testkit.fleet.real_fleet import Fleet
from ureplicator_testkit.records.topics import compare_logs, offsets, produce, sample_records
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.processes import eventually
from ureplicator_testkit.servers.zookeeper import ZooKeeperServer

RECORDS = 400


@pytest.fixture(scope="module")
def running(make_fleet: Callable[..., Fleet]) -> Fleet:
    """The first tests leave it without topics, the last one stops it."""
    return make_fleet(f"exported-{uuid.uuid4().hex[:8]}").start()


def ureplicator(fleet: Fleet, *words: str | Path) -> str:
    """Output of an operator's command, which must succeed."""
    done = run(*words, url=fleet.url())
    assert done.exit_code == 0, done.output
    return done.stdout


def in_a_shell(fleet: Fleet, *words: str | Path) -> str:
    """Output of a command in a process of its own."""
    return subprocess.run(  # noqa: S603
        [Path(sys.executable).with_name("ureplicator"), *words, "--url", fleet.url()],
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def wipe(zookeeper: ZooKeeperServer, fleet: str) -> None:
    """All that the fleet had there is gone."""
    client = ZooKeeperCoordination(hosts=zookeeper.hosts, session_timeout_s=10)
    client.connect(30)
    try:
        _remove(client, Paths(fleet).root)
    finally:
        client.close()


def _remove(client: Coordination, path: str) -> None:
    for name in client.children(path):
        _remove(client, f"{path}/{name}")
    client.transact([Delete(path)])


def wait_no_topics(fleet: Fleet) -> None:
    eventually(lambda: fleet.rest("GET", "/topics") == {"topics": []}, 30, "the topic is gone")


def test_a_fleet_becomes_what_a_file_says(
    running: Fleet, source_topic: str, tmp_path: Path
) -> None:
    file = tmp_path / "fleet.yaml"
    head = f"version: 1\nfleet: {running.name}\ntopics:\n  source.target:\n"
    file.write_text(f"{head}    {source_topic}: {{partitions: 2}}\n")
    dry = in_a_shell(running, "apply", file, "--dry-run")
    assert "1 created (dry run" in dry
    assert running.rest("GET", "/topics") == {"topics": []}
    done = ureplicator(running, "apply", file)
    assert done.splitlines()[0] == dry.splitlines()[0]
    running.wait_online(source_topic, 2)

    file.write_text(f"{head}    {source_topic}: {{partitions: 4}}\n")
    assert "partitions: 2 -> 4" in ureplicator(running, "apply", file)
    running.wait_online(source_topic, 4)
    assert ureplicator(running, "apply", file, "--prune") == "1 unchanged\n"
    paused = ("topics", "list", "--state", "paused", "--match", f"{source_topic[:3]}*")
    ureplicator(running, "topics", "pause", source_topic)
    assert ureplicator(running, *paused) == f"{source_topic}\n"

    file.write_text(f"{head}    {{}}\n")
    assert ureplicator(running, "apply", file) == "no items\n"
    assert "1 deleted" in ureplicator(running, "apply", file, "--prune")
    wait_no_topics(running)


def test_a_request_is_followed_through_history_and_logs(running: Fleet, source_topic: str) -> None:
    response = requests.post(
        f"{running.url()}/topics/{source_topic}",
        headers={"X-Request-Id": "change-17"},
        timeout=20,
    )
    request = response.headers["X-Request-Id"]
    running.wait_online(source_topic, 4)

    def moves() -> list[dict[str, object]]:
        found = running.rest("GET", "/history?request=change-17&kind=move")["history"]
        return list(found) if all(event["tookMs"] is not None for event in found) else []

    events = eventually(moves, 20, "the moves have ended, and the history knows how long they took")
    assert len(events) == 4
    assert {event["request"] for event in events} == {request}
    controller, worker = running.log_of("c1"), running.log_of("w1")
    assert (
        f"POST /topics/{source_topic} by anyone from 127.0.0.1: 201 (request {request})"
        in controller
    )
    for event in events:
        (line,) = [one for one in controller.splitlines() if f"move {event['event']}:" in one]
        assert f"(request {request})" in line
        assert f"{event['event']}: ONLINE" in worker
    running.rest("DELETE", f"/topics/{source_topic}")
    wait_no_topics(running)


def test_a_wiped_fleet_goes_on_at_its_positions(
    running: Fleet,
    zookeeper: ZooKeeperServer,
    source_cluster: KafkaCluster,
    target_cluster: KafkaCluster,
    source_topic: str,
    tmp_path: Path,
) -> None:
    source, target = source_cluster.bootstrap, target_cluster.bootstrap

    def copied(count: int) -> None:
        eventually(
            lambda: sum(end for _, end in offsets(target, source_topic).values()) >= count,
            60,
            f"{count} records are copied",
        )

    produce(source, source_topic, sample_records(RECORDS, partitions=4))
    running.whitelist(source_topic)
    copied(RECORDS)
    export = tmp_path / "export.yaml"

    def exported() -> bool:
        """True once the leader knows that there are positions."""
        ureplicator(running, "export", export)
        return "hadPosition: 0-3" in export.read_text()

    eventually(exported, 30, "all positions are noted", poll_s=0.5)
    running.stop()
    wipe(zookeeper, running.name)
    produce(source, source_topic, sample_records(RECORDS, partitions=4, seed=2))

    running.start_controller("c1")
    assert running.rest("GET", "/topics") == {"topics": []}
    assert "created   topics.source.target" in ureplicator(running, "import", export)
    assert "2 unchanged" in ureplicator(running, "import", export)
    running.start_worker("w1")
    copied(2 * RECORDS)
    running.wait_online(source_topic, 4)
    running.stop()
    compare_logs(source, target, source_topic).assert_clean()
