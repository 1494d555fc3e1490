"""`ureplicator doctor` with real servers, and with one that accepts connections and says nothing."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # exported without __all__
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)
from kazoo.client import KazooClient

from ureplicator_common.kafka.client import open_client
from ureplicator_common.kafka.transactions.probe_topic import probe_topic
from ureplicator_testkit.control.command import run
from ureplicator_testkit.records.topics import create_topic
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.processes import eventually
from ureplicator_testkit.servers.zookeeper import ZooKeeperServer
from ureplicator_worker.copier.ownership.target_check import CheckedTarget, KafkaTargetCheck

pytestmark = pytest.mark.integration

TIMEOUT_S = 3
DEADLINE_S = 20


@contextmanager
def silent_server() -> Iterator[str]:
    """Address of a server that accepts connections and never responds."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def silent() -> Iterator[str]:
    with silent_server() as address:
        yield address


@pytest.fixture
def another() -> Iterator[str]:
    """Another one: no two clusters share an address."""
    with silent_server() as address:
        yield address


@pytest.fixture
def config(
    zookeeper: ZooKeeperServer,
    source_cluster: KafkaCluster,
    target_cluster: KafkaCluster,
    fleet: str,
    tmp_path: Path,
) -> dict[str, Any]:
    return {
        "fleet": fleet,
        "zookeeper": {"hosts": zookeeper.hosts},
        "clusters": {
            "west": {"bootstrap.servers": source_cluster.bootstrap},
            "east": {"bootstrap.servers": target_cluster.bootstrap},
        },
        "routes": [{"source": "west", "target": "east"}],
    }


def examined(
    config: dict[str, Any], folder: Path, exit_code: int, *, timeout_s: int = TIMEOUT_S
) -> list[dict[str, str]]:
    path = folder / "fleet.yaml"
    path.write_text(yaml.safe_dump(config))
    words = ("doctor", "--config", path, "--timeout", str(timeout_s), "--json")
    result = run(*words, "--set", "controller.port=0")
    assert result.exit_code == exit_code, (result.output, result.exception)
    assert result.stdout, result.stderr
    body = json.loads(result.stdout)
    assert body["ok"] is (exit_code == 0)
    return list(body["findings"])


def failures(found: list[dict[str, str]]) -> list[str]:
    return [
        f"{finding['subject']}: {finding['reason']}"
        for finding in found
        if finding["level"] == "failure"
    ]


class UnusedCluster(KafkaCluster):
    """Its brokers make the topics of their coordinators when they are asked for one first."""

    def _warm_up(self) -> None:
        """Ask for none."""


def test_a_cluster_that_nobody_has_used(config: dict[str, Any], tmp_path: Path) -> None:
    with UnusedCluster(name="unused", heap_mb=256) as unused:
        config["clusters"]["east"] = {"bootstrap.servers": unused.bootstrap}
        found = examined(config, tmp_path, 0, timeout_s=DEADLINE_S)
    assert not [
        finding
        for finding in found
        if finding["level"] == "warning" and "right" in finding["reason"]
    ]


def test_a_target_that_forgets_producers_too_early_for_exactly_once(
    config: dict[str, Any], fleet: str, tmp_path: Path
) -> None:
    """Doctor and copiers refuse it, until its broker is told to remember them for longer."""
    config["routes"][0]["delivery"] = "exactly_once"
    short = {"producer.id.expiration.ms": "60000"}
    with (
        KafkaCluster(name="forgetful", heap_mb=256, properties=short) as east,
        closing(open_client("east", {"bootstrap.servers": east.bootstrap})) as client,
    ):
        config["clusters"]["east"] = {"bootstrap.servers": east.bootstrap}

        def checked() -> CheckedTarget:
            return KafkaTargetCheck(
                client,
                topic=probe_topic(fleet),
                new_id=lambda: f"{fleet}.{uuid4().hex}",
                wall_s=time.time,
            ).checked()

        fault = (
            "producer.id.expiration.ms = 60000, too short beside connections.max.idle.ms = 600000"
        )
        assert checked().refusal == f"target: exactly once is refused: {fault}"
        found = examined(config, tmp_path, 1, timeout_s=DEADLINE_S)
        assert failures(found) == [f"cluster east: exactly once: {fault}"]
        set_of_broker(east, "producer.id.expiration.ms", "7200000")
        eventually(lambda: checked() == CheckedTarget("", 3_600), DEADLINE_S, "it is accepted")
        examined(config, tmp_path, 0, timeout_s=DEADLINE_S)
        assert (probe_topic(fleet), 0) in client.view([probe_topic(fleet)]).leaders


def set_of_broker(cluster: KafkaCluster, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    broker = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
    admin = cluster.admin()
    for future in admin.incremental_alter_configs([broker]).values():
        future.result(timeout=30)


def test_healthy_servers(
    config: dict[str, Any], source_cluster: KafkaCluster, topic: str, tmp_path: Path
) -> None:
    create_topic(source_cluster.bootstrap, topic, partitions=1)
    found = examined(config, tmp_path, 0)
    reasons = [
        f"{finding['subject']}: {finding['reason']}"
        for finding in found
        if finding["level"] == "ok"
    ]
    for expected in (
        "cluster east: may create topics",
        "cluster east: may get producer ids",
        "cluster east: may write transactions",
        "cluster east: may commit positions",
        "route west.east: what the source takes by default fits into the target",
        f"ZooKeeper: /ureplicator/{config['fleet']} may be read and written",
    ):
        assert expected in reasons
    assert not any("not known:" in finding["reason"] for finding in found)


def test_nothing_is_left_behind(
    config: dict[str, Any], zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    examined(config, tmp_path, 0)
    client = KazooClient(zookeeper.hosts)
    client.start()
    try:
        assert not client.exists_async(f"/ureplicator/{config['fleet']}").get(timeout=TIMEOUT_S)
        names = client.get_children_async("/").get(timeout=TIMEOUT_S)
        assert not [name for name in names if name.startswith("doctor")]
    finally:
        client.stop()
        client.close()


def test_silent_servers_are_named_within_the_deadline(
    config: dict[str, Any], silent: str, another: str, tmp_path: Path
) -> None:
    config["clusters"]["west"]["bootstrap.servers"] += f",{silent}"
    config["clusters"]["east"]["bootstrap.servers"] = another
    config["zookeeper"]["hosts"] += f",{silent}"
    began_s = time.monotonic()
    found = examined(config, tmp_path, 1)
    assert time.monotonic() - began_s < DEADLINE_S
    named = {
        finding["subject"]: finding["level"]
        for finding in found
        if silent in finding["reason"] or another in finding["reason"]
    }
    assert named == {
        "ZooKeeper": "warning",
        "cluster east": "failure",
        "cluster west": "warning",
    }
    assert len(failures(found)) == 1


def test_text_and_exit_code(config: dict[str, Any], silent: str, tmp_path: Path) -> None:
    config["clusters"]["east"]["bootstrap.servers"] = silent
    path = tmp_path / "fleet.yaml"
    path.write_text(yaml.safe_dump(config))
    result = run("doctor", "--config", path, "--timeout", str(TIMEOUT_S))
    assert result.exit_code == 1
    assert f"failure  cluster east: {silent} does not respond: " in result.stdout
    assert "-> start it, open the way to it, or correct bootstrap.servers" in result.stdout
