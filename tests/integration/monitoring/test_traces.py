"""Traces of a live fleet: a drain, and the moves that the leader made of it, in one trace of the client."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
import requests

from ureplicator_testkit.deploy.collector import Collector, running_collector
from ureplicator_testkit.fleet.real_fleet import Fleet
from ureplicator_testkit.records.topics import create_topic
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.processes import eventually
from ureplicator_testkit.servers.zookeeper import ZooKeeperServer

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

TRACE, CLIENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARTITIONS = 4
TRACED_S = 60.0


def of_trace(collector: Collector, name: str) -> list[str]:
    """Ids of the spans' parents."""
    return [
        span.parent_span_id.hex()
        for span in collector.spans
        if span.trace_id.hex() == TRACE and span.name.startswith(name)
    ]


def test_a_drain_and_its_moves_are_one_trace(
    zookeeper: ZooKeeperServer,
    source_cluster: KafkaCluster,
    target_cluster: KafkaCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
    name = f"traces-{uuid.uuid4().hex[:8]}"
    with running_collector() as collector:
        fleet = Fleet(
            name=name,
            folder=tmp_path,
            zookeeper=zookeeper.hosts,
            source=source_cluster.bootstrap,
            target=target_cluster.bootstrap,
            controller={
                "tracing": {"endpoint": collector.endpoint},
                "timeline": {"interval_s": 1},
                "join_delay_s": 1,
            },
        )
        try:
            fleet.start(workers=2)
            create_topic(source_cluster.bootstrap, name, partitions=PARTITIONS)
            fleet.whitelist(name)
            fleet.wait_online(name, PARTITIONS)
            moving = sum(worker == "w1" for worker in fleet.owners(name).values())
            assert moving
            headers = {"traceparent": f"00-{TRACE}-{CLIENT}-01"}
            drained = f"{fleet.url()}/instances/w1"
            assert requests.delete(drained, headers=headers, timeout=20).ok
            eventually(
                lambda: len(of_trace(collector, "move")) >= moving, TRACED_S, "moves are traced"
            )
        finally:
            fleet.kill()
    assert of_trace(collector, "DELETE /instances/") == [CLIENT]
    (requested,) = (span for span in collector.spans if span.name.startswith("DELETE"))
    assert of_trace(collector, "move") == [requested.span_id.hex()] * moving
    (process,) = {tuple(sorted(resource.items())) for resource in collector.resources}
    assert (
        dict(process).items()
        >= {
            "service.name": "ureplicator-controller",
            "service.namespace": name,
            "service.instance.id": "c1",
        }.items()
    )
