"""A whole fleet between brokers that want TLS and logins: every path to Kafka is one of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ureplicator_testkit.fleet.real_fleet import Fleet
from ureplicator_testkit.records.topics import compare_logs, create_topic, produce, sample_records
from ureplicator_testkit.secured.brokers import PASSWORD
from ureplicator_testkit.secured.ends import Secured, logins
from ureplicator_testkit.secured.tokens import SECRET
from ureplicator_testkit.servers.processes import eventually, spawn_ureplicator
from ureplicator_testkit.servers.zookeeper import ZooKeeperServer

PARTITIONS = 2
COPIED_S = 60.0


@pytest.fixture
def running(
    zookeeper: ZooKeeperServer, secured: Secured, fleet: str, tmp_path: Path
) -> Iterator[Fleet]:
    """The source by token, the target by a password from a file."""
    file = tmp_path / "secret"
    file.write_text(f"{PASSWORD}\n")
    by_password = logins(secured, "SCRAM-SHA-512", **{"sasl.password.file": str(file)})
    whole = Fleet(
        name=fleet,
        folder=tmp_path,
        zookeeper=zookeeper.hosts,
        source=secured.source.bootstrap,
        target=secured.target.bootstrap,
        route={"delivery": "exactly_once"},
        security={
            "source": logins(secured, "OAUTHBEARER")["source"],
            "target": by_password["target"],
        },
    )
    try:
        yield whole.start()
    finally:
        whole.kill()


def test_topics_are_created_copied_measured_and_compared(
    running: Fleet, secured: Secured, topic: str, tmp_path: Path
) -> None:
    source, target = secured.source.bootstrap, secured.target.bootstrap
    create_topic(source, topic, partitions=PARTITIONS)
    produce(source, topic, sample_records(1_000, partitions=PARTITIONS, seed=3))
    running.whitelist(topic)
    running.wait_online(topic, PARTITIONS)

    def lags() -> list[int | None]:
        return [
            running.rest("GET", f"/offset/{topic}/{number}")["lagRecords"]
            for number in range(PARTITIONS)
        ]

    eventually(lambda: lags() == [0] * PARTITIONS, COPIED_S, "the lag is measured, and 0")
    compare_logs(source, target, topic).assert_clean()
    audit = spawn_ureplicator(
        *("audit", running.config_of("audit"), "--topic", topic, "--master", "local[1]"),
        log=tmp_path / "audit.log",
    )
    assert audit.wait(COPIED_S) == 0, audit.log_tail()
    shown = "".join(path.read_text(errors="replace") for path in tmp_path.glob("*.log"))
    assert PASSWORD not in shown
    assert SECRET not in shown
