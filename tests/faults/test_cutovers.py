"""Whatever dies or freezes while clients move: they are at the old cluster or at the new one, never between,
and no record is lost, repeated, or out of order at either."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from ureplicator_testkit.cutover.clusters import BothEnds, ends_with_rights
from ureplicator_testkit.cutover.moves import PARTITIONS, Moves, moving_fleet
from ureplicator_testkit.fleet.real_fleet import Fleet
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.processes import Process
from ureplicator_testkit.servers.zookeeper import ZooKeeperServer

MOVES = int(os.environ.get("UREPLICATOR_CUTOVERS", "7"))
"""Each fault once, by default."""
SEED = int(os.environ.get("UREPLICATOR_SEED", "1"))
TOPICS = 4
MOMENT_S = 1.5
"""The fault comes within so long from the request: before the fence, or up to some time behind OPEN."""
FROZEN_S = 6.0
"""Longer than sessions with ZooKeeper last."""
PAUSED_S = 3.0
pytestmark = pytest.mark.timeout(300 + 120 * MOVES)


class Faults:
    """What may happen to a fleet and its servers, by name."""

    def __init__(
        self, fleet: Fleet, ends: BothEnds, zookeeper: ZooKeeperServer, dice: random.Random
    ) -> None:
        self._fleet, self._dice = fleet, dice
        self.by_name: dict[str, Callable[[], None]] = {
            "leader killed": self._kill_leader,
            "leader frozen": self._freeze_leader,
            "worker killed": self._kill_worker,
            "worker frozen": self._freeze_worker,
            "source frozen": partial(self._pause_broker, ends.source),
            "target frozen": partial(self._pause_broker, ends.target),
            "ZooKeeper frozen": partial(self._pause_zookeeper, zookeeper),
        }

    def _kill_leader(self) -> None:
        leader = self._fleet.leader()
        if leader:
            self._fleet.controllers[leader].kill_tree()

    def _freeze_leader(self) -> None:
        leader = self._fleet.leader()
        if leader:
            self._freeze(self._fleet.controllers[leader])

    def _worker(self) -> Process:
        return self._fleet.workers[self._dice.choice(sorted(self._fleet.workers))]

    def _kill_worker(self) -> None:
        self._worker().kill_tree()

    def _freeze_worker(self) -> None:
        self._freeze(self._worker())

    def _freeze(self, process: Process) -> None:
        process.pause()
        try:
            self._fleet.wait_seconds(FROZEN_S)
        finally:
            process.resume()

    def _pause_broker(self, cluster: KafkaCluster) -> None:
        cluster.pause_broker()
        try:
            self._fleet.wait_seconds(PAUSED_S)
        finally:
            cluster.resume_broker()

    def _pause_zookeeper(self, zookeeper: ZooKeeperServer) -> None:
        zookeeper.pause()
        try:
            self._fleet.wait_seconds(PAUSED_S)
        finally:
            zookeeper.resume()


def test_faults_while_clients_move_lose_and_repeat_nothing(
    unique_name: str, tmp_path: Path
) -> None:
    dice = random.Random(SEED)  # noqa: S311
    topics = {f"{unique_name}-{number}": PARTITIONS for number in range(TOPICS)}
    with (
        ZooKeeperServer(name="zookeeper-cutovers", heap_mb=96) as zookeeper,
        ends_with_rights() as ends,
        moving_fleet(
            ends,
            name=unique_name,
            folder=tmp_path,
            zookeeper=zookeeper.hosts,
            topics=topics,
            controllers=2,
            workers=2,
            controller={"rebalance_delay_s": 0, "join_delay_s": 1},
        ) as fleet,
    ):
        moves, faults = Moves(fleet, ends, topics), Faults(fleet, ends, zookeeper, dice)
        moves.start()
        outcomes: list[str] = []
        left = list(faults.by_name)
        try:
            for _ in range(MOVES):
                left = left or list(faults.by_name)
                fault = left.pop(dice.randrange(len(left)))
                moves.request()
                fleet.wait_seconds(dice.uniform(0, MOMENT_S))
                faults.by_name[fault]()
                shown = moves.follow()
                outcomes.append(f"{fault}: {shown['state']} {shown['blockedSeconds']} s")
                fleet.heal()
        finally:
            print("\n".join(outcomes))
            moves.stop()
        moves.judge()
