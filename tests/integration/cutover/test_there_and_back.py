"""Clients move to the other cluster and back, while they write and read: nothing is lost, repeated, or out of
order at either cluster, or at the readers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ureplicator_testkit.cutover.applications import Group, Writer, expected
from ureplicator_testkit.fleet.real_fleet import Fleet
from ureplicator_testkit.records.topics import create_topic, read_all
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.processes import eventually

PARTITIONS, TOPICS = 4, 3
STEP_S, COPIED_S = 60, 60
POLL_S = 0.05
THERE = {"source": "source", "target": "target", "delivery": "exactly_once", "offset_map": True}
BACK = {**THERE, "source": "target", "target": "source"}


@pytest.fixture
def topics(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, unique_name: str
) -> dict[str, int]:
    names = {f"{unique_name}-{number}": PARTITIONS for number in range(TOPICS)}
    for cluster in (source_cluster, target_cluster):
        for name in names:
            create_topic(cluster.bootstrap, name, partitions=PARTITIONS)
    return names


@pytest.fixture
def moving(
    new_fleet: Callable[..., Fleet], topics: dict[str, int], unique_name: str, tmp_path: Path
) -> Iterator[Fleet]:
    """A fleet that copies in both directions, the topics there."""
    with new_fleet(name=unique_name, folder=tmp_path, routes=(THERE, BACK)).start() as fleet:
        for name in topics:
            fleet.whitelist(name)
        for name in topics:
            fleet.wait_online(name, PARTITIONS)
        yield fleet


def cutover(fleet: Fleet) -> Any:
    shown = fleet.rest("GET", "/cutovers/move")
    assert shown["state"] != "ABORTED", shown
    return shown


def await_state(fleet: Fleet, *states: str) -> Any:
    def reached() -> Any:
        shown = cutover(fleet)
        return shown if shown["state"] in states else None

    return eventually(reached, STEP_S, f"one of {states}", poll_s=POLL_S)


def has_values(
    cluster: KafkaCluster, topic: str, wanted: Mapping[tuple[str, int], list[bytes]]
) -> bool:
    found = read_all(cluster.bootstrap, topic)
    return {(topic, n): [each.value for each in log] for n, log in found.items()} == wanted


def move(fleet: Fleet, writer: Writer, group: Group, to: KafkaCluster) -> Any:
    """The applications as they move with a cutover that was requested."""
    await_state(fleet, "FENCED", "DRAINED", "VERIFIED", "GROUPS", "OPEN", "WATCHED")
    group.leave()
    group.join()
    await_state(fleet, "OPEN", "WATCHED")
    writer.go_to({"bootstrap.servers": to.bootstrap})
    group.go_to({"bootstrap.servers": to.bootstrap})
    return await_state(fleet, "WATCHED", "DONE")


def test_writers_and_readers_move_there_and_back(
    moving: Fleet,
    topics: dict[str, int],
    source_cluster: KafkaCluster,
    target_cluster: KafkaCluster,
) -> None:
    body = {
        "topics": [f"{moving.name}-.*"],
        "groups": [f"{moving.name}-group"],
        "waitForGroups": True,
    }
    writer = Writer({"bootstrap.servers": source_cluster.bootstrap}, topics)
    group = Group(
        {"bootstrap.servers": source_cluster.bootstrap}, f"{moving.name}-group", [*topics]
    )
    writer.start()
    group.start()
    eventually(lambda: sum(map(len, group.read.values())) > 200, STEP_S, "the group reads")
    way = "?src=source&dst=target"
    planned = moving.rest("POST", f"/cutovers/move{way}", json=body)
    assert not planned["blocked"], planned
    assert planned["plan"]["topics"] == topics
    assert planned["plan"]["groups"] == [group.name]
    moving.rest("POST", "/cutovers/move/rehearse")
    rehearsed = eventually(lambda: cutover(moving)["rehearsal"], STEP_S, "it was rehearsed")
    assert list(rehearsed) == ["FENCED", "DRAINED", "VERIFIED", "GROUPS", "OPEN"]
    assert cutover(moving)["state"] == "PLANNED"
    writer.pause()
    moving.rest("POST", f"/cutovers/move/start?plan={planned['plan']['id']}")
    shown = move(moving, writer, group, target_cluster)
    writer.resume()
    assert shown["groups"][group.name] == "synced"
    assert not shown["late"]
    until = sum(writer.acknowledged.values()) + 100
    eventually(lambda: sum(writer.acknowledged.values()) > until, STEP_S, "the writer goes on")
    writer.pause()
    moving.rest("POST", "/cutovers/move/back?confirm=true")
    move(moving, writer, group, source_cluster)
    writer.resume()
    until = sum(writer.acknowledged.values()) + 100
    eventually(lambda: sum(writer.acknowledged.values()) > until, STEP_S, "the writer goes on")
    writer.stop()
    wanted = expected(writer.acknowledged)
    for cluster in (source_cluster, target_cluster):
        for topic in topics:
            right = {key: values for key, values in wanted.items() if key[0] == topic}
            has_all = partial(has_values, cluster, topic, right)
            eventually(has_all, COPIED_S, f"{cluster.name} has all of {topic}")
    eventually(lambda: group.read == wanted, COPIED_S, "the group has read all, once, in order")
    group.leave()
    group.join()
