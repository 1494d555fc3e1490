"""Cutovers under load between clusters with an authorizer: the fence holds what writes, and nothing is lost,
repeated, or out of order, at either cluster, there and back."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest

from ureplicator_common.kafka.acl_requests import KafkaAclAdmin
from ureplicator_common.kafka.acls import TopicAcl
from ureplicator_common.kafka.client import open_client
from ureplicator_testkit.cutover.clusters import BothEnds, ends_with_rights
from ureplicator_testkit.cutover.moves import PARTITIONS, Moves, moving_fleet
from ureplicator_testkit.secured.plain_logins import ROOT
from ureplicator_testkit.servers.zookeeper import ZooKeeperServer

TOPICS = int(os.environ.get("UREPLICATOR_CUTOVER_TOPICS", "4"))
MOVES = int(os.environ.get("UREPLICATOR_CUTOVERS", "2"))
pytestmark = pytest.mark.timeout(300 + 60 * MOVES)


def rights(ends: BothEnds) -> list[frozenset[TopicAcl]]:
    """Those of the source and of the target."""
    found = []
    for name, properties in ends.properties(ROOT).items():
        with closing(KafkaAclAdmin(open_client(name, properties), name=name)) as admin:
            found.append(admin.read())
    return found


def test_writers_are_fenced_and_move_under_load(
    zookeeper: ZooKeeperServer, unique_name: str, tmp_path: Path
) -> None:
    topics = {f"{unique_name}-{number}": PARTITIONS for number in range(TOPICS)}
    blocked: list[float] = []
    with (
        ends_with_rights() as ends,
        moving_fleet(
            ends, name=unique_name, folder=tmp_path, zookeeper=zookeeper.hosts, topics=topics
        ) as fleet,
    ):
        moves, before = Moves(fleet, ends, topics), rights(ends)
        moves.start()
        try:
            for _ in range(MOVES):
                moves.request()
                shown = moves.follow()
                assert shown["state"] != "ABORTED", shown["reason"]
                alarms = [late for late in shown["late"] if late["alarm"]]
                assert not alarms, "what brokers had let in before the fence is drained"
                blocked.append(shown["blockedSeconds"])
        finally:
            moves.stop()
        moves.judge()
        refused = [dict(writer.errors) for writer in moves.writers]
        print(f"writes blocked for {sorted(blocked)} s; refused: {refused}")
        assert all("TOPIC_AUTHORIZATION_FAILED" in errors for errors in refused[:1])
        if not moves.is_there:
            source, target = rights(ends)
            assert source == before[0]
            assert target > before[1], "the target stays fenced behind the way back"
