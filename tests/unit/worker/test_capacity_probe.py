"""Lack of Spark capacity, as the driver observes it from outside."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from ureplicator_worker.engines.cluster_capacity import Address, CapacityProbe, addresses

START_S = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC).timestamp()


class Cluster:
    """A probe with all that it observes."""

    def __init__(
        self, log: Path, *, master: str = "spark://m1:7077,m2:7078", slots: int = 2
    ) -> None:
        self.now_s = START_S
        self.failures: dict[Address, str] = {}
        self.log = log
        self.probe = CapacityProbe(
            master=master,
            slots=slots,
            log=log,
            wall_s=lambda: self.now_s,
            connect=lambda address: self.failures.get(address, ""),
        )

    def ended(self, executor: int, reason: str) -> None:
        """A line of Spark's log, whose times are local."""
        time = datetime.fromtimestamp(self.now_s).strftime("%Y-%m-%dT%H:%M:%S.000")  # noqa: DTZ006
        client = "StandaloneAppClient$ClientEndpoint"
        line = (
            f"{time} INFO {client}: Executor updated: app-1/{executor} is now EXITED ({reason})\n"
        )
        with self.log.open("a") as file:
            file.write(line)


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path / "spark.log")


def test_enough_cores_lack_nothing(cluster: Cluster) -> None:
    cluster.failures = {("m1", 7077): "Connection refused", ("m2", 7078): "Connection refused"}
    assert cluster.probe.missing(2) == ""


def test_a_master_is_away_when_no_address_of_it_responds(cluster: Cluster) -> None:
    cluster.failures = {("m1", 7077): "Connection refused"}
    assert cluster.probe.missing(1).startswith("no free cores")
    cluster.failures[("m2", 7078)] = "timed out"
    cluster.now_s += 60
    away = "Spark master m1:7077, m2:7078 is away since 2026-01-31T12:01:00Z: Connection refused"
    assert cluster.probe.missing(1) == away


def test_since_is_when_the_cause_began(cluster: Cluster) -> None:
    first = cluster.probe.missing(1)
    cluster.now_s += 100
    assert cluster.probe.missing(1) == first
    assert first == "no free cores since 2026-01-31T12:00:00Z: 1 of 2 executors"
    assert cluster.probe.missing(0) == first.replace("1 of 2", "0 of 2")
    assert cluster.probe.missing(2) == ""
    assert "12:01:40" in cluster.probe.missing(1)


def test_executors_that_end_one_after_the_other_are_refused(cluster: Cluster) -> None:
    for executor in range(3):
        cluster.ended(executor, "Command exited with code 1")
    assert cluster.probe.missing(0).startswith("no free cores"), "each slot may have lost one"
    cluster.ended(3, "Command exited with code 137")
    refused = "executors are refused since 2026-01-31T12:00:00Z: Command exited with code 137"
    assert cluster.probe.missing(0) == refused
    cluster.now_s += 61
    assert cluster.probe.missing(0).startswith("no free cores"), "that was long ago"


@pytest.mark.parametrize(
    ("master", "expected"),
    [
        ("spark://h:7077", [("h", 7077)]),
        ("spark://h1:1,h2:2", [("h1", 1), ("h2", 2)]),
        ("k8s://https://api.example:6443", [("api.example", 6443)]),
        ("k8s://api.example", [("api.example", 443)]),
        ("local[2]", []),
        ("yarn", []),
    ],
)
def test_addresses_of_masters(master: str, expected: list[Address]) -> None:
    assert addresses(master) == expected
