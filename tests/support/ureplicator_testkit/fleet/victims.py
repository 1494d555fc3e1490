"""SIGKILL for whatever may be hit: a copier, a JVM, a whole worker, the broker that is a coordinator.

What was killed comes back by itself, or is started again: a worker at once, a broker by a thread of its own,
which waits until all replicas are in sync. Until then no other broker is killed: two away would stop every
acknowledgement, which proves less.
"""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

import requests

from ureplicator_common.model import WorkerId, transactional_ids
from ureplicator_testkit.fleet.real_fleet import FORTH, READY_S, Fleet, pids_of
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.processes import eventually
from ureplicator_testkit.servers.replicas import (
    group_coordinator,
    settle,
    transaction_coordinator,
)

COPIER, JVM, WORKER, BROKER = KINDS = ("copier", "jvm", "worker", "coordinator broker")
ROUND = (COPIER, *KINDS)
"""Killed in an order that is drawn each time. A copier is back the soonest."""


class Victims:
    """`killed`: how many of each kind."""

    def __init__(
        self, fleet: Fleet, target: KafkaCluster, *, slots: int, dice: random.Random
    ) -> None:
        self.killed: Counter[str] = Counter()
        self._fleet, self._target, self._slots, self._dice = fleet, target, slots, dice
        self._round: list[str] = []
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="broker-restart")
        self._restart: Future[None] | None = None

    def kill_one(self) -> str:
        """Its name; "" if nothing of the kind that was drawn runs just now: it is drawn again later."""
        self._round = self._round or list(ROUND)
        kind = self._dice.choice(self._round)
        kill: dict[str, Callable[[], str]] = {
            COPIER: self._kill_copier,
            JVM: self._kill_jvm,
            WORKER: self._kill_worker,
            BROKER: self._kill_broker,
        }
        name = kill[kind]()
        if not name:
            return ""
        self._round.remove(kind)
        self.killed[kind] += 1
        return f"{kind} {name}"

    def tend(self) -> None:
        """Start workers that ended."""
        for id, process in self._fleet.workers.items():
            if not process.running:
                process.kill_tree()
                self._fleet.start_worker(id)

    def recover(self) -> None:
        """Wait until all workers are live. One whose JVM was killed while it started ends only then."""

        def all_live() -> bool:
            self.tend()
            return set(self._fleet.workers) <= self._fleet.live_workers()

        eventually(all_live, READY_S, "all workers are live again")

    def close(self) -> None:
        """A broker that is under way is waited for."""
        self._pool.shutdown()
        if self._restart is not None:
            self._restart.result()

    def _kill_copier(self) -> str:
        id = self._worker()
        try:
            slots = self._fleet.status(id)["slots"]
        except (requests.RequestException, AssertionError):  # it is just starting, or ending
            return ""
        pids = [slot["pid"] for slot in slots if slot["pid"]]
        return self._kill(self._dice.choice(pids), id) if pids else ""

    def _kill_jvm(self) -> str:
        id = self._worker()
        pids = pids_of(self._fleet.workers[id], "java")
        return self._kill(pids[0], id) if pids else ""

    def _kill_worker(self) -> str:
        id = self._worker()
        self._fleet.workers[id].kill_tree()
        return id

    def _kill_broker(self) -> str:
        if self._restart is not None and not self._restart.done():
            return ""
        if self._restart is not None:
            self._restart.result()
        broker = self._coordinator()
        self._target.kill(broker)
        self._restart = self._pool.submit(self._bring_back, broker)
        return str(broker)

    def _coordinator(self) -> int:
        """Coordinator of the group of positions, or of a slot's transactional id."""
        ids = transactional_ids(
            fleet=self._fleet.name,
            route=FORTH,
            worker=WorkerId(self._worker()),
            slots=self._slots,
        )
        if self._dice.random() < 1 / 3:
            return group_coordinator(self._target, self._fleet.group())
        return transaction_coordinator(self._target, self._dice.choice(ids))

    def _bring_back(self, broker: int) -> None:
        self._target.restart(broker)
        settle(self._target)

    def _worker(self) -> str:
        return self._dice.choice(sorted(self._fleet.workers))

    @staticmethod
    def _kill(pid: int, name: str) -> str:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            return name
        return ""
