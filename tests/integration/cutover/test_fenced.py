"""Cutovers under load between clusters with an authorizer: the fence holds what writes, and nothing is lost,
repeated, or out of order, at either cluster, there and back."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ureplicator_common.kafka.acl_requests import KafkaAclAdmin
from ureplicator_common.kafka.client import open_client
from ureplicator_testkit.cutover.applications import Writer, expected
from ureplicator_testkit.cutover.clusters import (
    APPLICATION,
    FLEET,
    BothEnds,
    ends_with_rights,
)
from ureplicator_testkit.fleet.real_fleet import Fleet
from ureplicator_testkit.records.topics import create_topic, read_all
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.processes import eventually
from ureplicator_testkit.servers.zookeeper import ZooKeeperServer

TOPICS = int(os.environ.get("UREPLICATOR_CUTOVER_TOPICS", "4"))
MOVES = int(os.environ.get("UREPLICATOR_CUTOVERS", "2"))
PARTITIONS = 4
STEP_S, COPIED_S = 60, 90
POLL_S = 0.02
THERE = {"source": "source", "target": "target", "delivery": "exactly_once", "offset_map": True}
BACK = {**THERE, "source": "target", "target": "source"}
pytestmark = pytest.mark.timeout(300 + 60 * MOVES)


@pytest.fixture(scope="module")
def ends() -> Iterator[BothEnds]:
    with ends_with_rights() as ends:
        yield ends


@pytest.fixture
def topics(ends: BothEnds, unique_name: str) -> dict[str, int]:
    names = {f"{unique_name}-{number}": PARTITIONS for number in range(TOPICS)}
    for cluster in ends:
        for name in names:
            create_topic(cluster.bootstrap, name, partitions=PARTITIONS)
    return names


@pytest.fixture
def moving(
    zookeeper: ZooKeeperServer,
    ends: BothEnds,
    topics: dict[str, int],
    unique_name: str,
    tmp_path: Path,
) -> Iterator[Fleet]:
    fleet = Fleet(
        name=unique_name,
        folder=tmp_path,
        zookeeper=zookeeper.hosts,
        source=ends.source.bootstrap,
        target=ends.target.bootstrap,
        routes=(THERE, BACK),
        security=ends.properties(FLEET),
        worker={"slots": 2, "commit_interval_s": 1},
    )
    with fleet.start() as fleet:
        for name in topics:
            fleet.whitelist(name)
        for name in topics:
            fleet.wait_online(name, PARTITIONS)
        yield fleet


def rights(ends: BothEnds) -> list[frozenset[Any]]:
    found = []
    for name, properties in ends.properties("root").items():
        admin = KafkaAclAdmin(open_client(name, properties), name=name)
        found.append(admin.read())
        admin.close()
    return found


def has_values(
    cluster: KafkaCluster, topic: str, wanted: dict[tuple[str, int], list[bytes]]
) -> bool:
    found = read_all(cluster.bootstrap, topic)
    return {(topic, n): [each.value for each in log] for n, log in found.items()} == wanted


def await_state(fleet: Fleet, *states: str) -> Any:
    def reached() -> Any:
        shown = fleet.rest("GET", "/cutovers/move")
        is_run = shown["run"] and shown["former"] is None
        return shown if is_run and shown["state"] in states else None

    return eventually(reached, STEP_S, f"one of {states}", poll_s=POLL_S)


def goes_on(writers: list[Writer]) -> None:
    def counts() -> list[int]:
        return [sum(writer.acknowledged.values()) for writer in writers]

    until = [count + 40 for count in counts()]
    eventually(
        lambda: all(now > then for now, then in zip(counts(), until, strict=True)),
        STEP_S,
        "all write on",
    )


def test_writers_are_fenced_and_move_under_load(
    moving: Fleet, ends: BothEnds, topics: dict[str, int]
) -> None:
    names, clients = list(topics), ends.properties(APPLICATION)
    half = len(names) // 2
    plain = Writer(clients["source"], {name: PARTITIONS for name in names[:half]})
    whole = Writer(
        clients["source"],
        {name: PARTITIONS for name in names[half:]},
        transactional_id=f"{moving.name}-application",
    )
    writers = [plain, whole]
    for writer in writers:
        writer.start()
    goes_on(writers)
    blocked: list[float] = []
    before = rights(ends)
    try:
        for number in range(MOVES):
            there = number % 2 == 0
            if there:
                body = {"topics": [f"{moving.name}-.*"], "fence": "acl"}
                way = "?src=source&dst=target"
                planned = moving.rest("POST", f"/cutovers/move{way}", json=body)
                assert not planned["blocked"], planned["findings"]
                moving.rest("POST", "/cutovers/move/start?confirm=true")
            else:
                moving.rest("POST", "/cutovers/move/back?confirm=true")
            await_state(moving, "OPEN", "WATCHED", "DONE")
            for writer in writers:
                writer.go_to(clients["target" if there else "source"])
            shown = await_state(moving, "WATCHED", "DONE")
            blocked.append(shown["blockedSeconds"])
            assert not shown["late"], shown["late"]
            goes_on(writers)
    finally:
        for writer in writers:
            writer.stop()
        print(f"blocked: {sorted(blocked)}, errors: {[dict(writer.errors) for writer in writers]}")
    wanted = expected(plain.acknowledged) | expected(whole.acknowledged)
    for cluster in ends:
        for topic in names:
            right = {key: values for key, values in wanted.items() if key[0] == topic}
            has_all = partial(has_values, cluster, topic, right)
            eventually(has_all, COPIED_S, f"{cluster.name} has all of {topic}, once, in order")
    if MOVES % 2 == 0:
        source, target = rights(ends)
        assert source == before[0]
        assert target > before[1], "the target stays fenced behind the way back"
