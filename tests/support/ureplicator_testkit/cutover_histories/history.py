"""One history from a seed."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from random import Random

from ureplicator_common.cutovers import CutoverState, FenceKind, Wanted
from ureplicator_common.kafka.groups import TopicPartition
from ureplicator_common.model import Route
from ureplicator_controller.core.cutover.states import AT_REST
from ureplicator_testkit.control.worker_process import InvariantViolated
from ureplicator_testkit.cutover_histories.announcements import Announcements
from ureplicator_testkit.cutover_histories.clients import Reader, first_writers
from ureplicator_testkit.cutover_histories.clusters import Cluster, first_rights
from ureplicator_testkit.cutover_histories.copying import TOPICS, CopyingFleet
from ureplicator_testkit.cutover_histories.faults import Faults
from ureplicator_testkit.cutover_histories.judge import Judge, Violation
from ureplicator_testkit.cutover_histories.leaders import Chances, Leader, ProcessEnded
from ureplicator_testkit.cutover_histories.logs import Log
from ureplicator_testkit.cutover_histories.operators import Operator, Run, drawn_script

CLUSTERS = ("a", "b")
TROUBLED_TURNS = 350
LAST_TURNS = 900
STEPS_S = (0.02, 0.05, 0.2, 0.5)
WATCHED_S = (0.5, 2.0, 5.0)


class History:
    """`open`: cluster that clients are to write to. `troubled`: topics that operators have deleted. `script`:
    of the operators; None: it is drawn, and so are faults."""

    def __init__(self, seed: int, script: Sequence[Run] | None = None) -> None:
        self.dice = dice = Random(seed)  # noqa: S311  # repeatable
        self.chances = Chances()
        self.clusters = {name: Cluster(name, TOPICS, dice) for name in CLUSTERS}
        rights, supers = first_rights(dice, TOPICS)
        for cluster in self.clusters.values():
            cluster.acls.acls, cluster.acls.super_users = set(rights), supers
        self._time = self._records = 0
        logs = {name: cluster.logs for name, cluster in self.clusters.items()}
        self.fleet = CopyingFleet(TOPICS, logs, self.time)
        self.open = "a"
        self.troubled: set[str] = set()
        self.acknowledged: defaultdict[TopicPartition, list[int]] = defaultdict(list)
        self.readers = [Reader("g", "a"), Reader("h", "a", goes_on=dice.random() < 0.7)]
        self.judge = Judge(self)
        kinds = (FenceKind.ACL, FenceKind.ACL, FenceKind.NONE, FenceKind.COMMAND)
        self.kind = script[0].fence if script else dice.choice(kinds)
        self.writers = first_writers(dice, self.kind)
        self.operator = Operator(self, drawn_script(dice, self.kind) if script is None else script)
        self.leader: Leader | None = None
        self.leaders = 0
        self.stale: list[Leader] = []
        self._is_nested = False
        self.told = Announcements(self)
        self.faults = Faults(self)
        if script is None:
            self.faults.draw()
        for id in ("a", "b"):
            self.fleet.start_worker(id)

    @property
    def count(self) -> dict[str, int]:
        """Counters of what happened."""
        return {
            "epochs": self.leaders,
            "records": self._records,
            "late records": len(self.judge.late),
            **self.judge.count,
        }

    # What others ask.

    @property
    def now_s(self) -> float:
        return self.fleet.now_s

    @property
    def route(self) -> Route:
        return Route(self.open, self.beside(self.open))

    @property
    def other(self) -> Cluster:
        """The cluster that is not open."""
        return self.clusters[self.beside(self.open)]

    def beside(self, name: str) -> str:
        return "b" if name == "a" else "a"

    def time(self) -> int:
        """Number of the next event."""
        self._time += 1
        return self._time

    @property
    def copies_back(self) -> bool:
        """True if the open cluster is copied to the other one."""
        node = self.judge.node
        if node is None or node.plan.route.target != self.open:
            return node is None or node.state is CutoverState.ABORTED
        return node.plan.way_back

    def add_partition(self, topic: str, count: int) -> None:
        for cluster in self.clusters.values():
            cluster.logs.setdefault((topic, count - 1), Log())
        self.fleet.add_partitions(topic, count)

    def new_record(self, cluster: str, key: TopicPartition) -> int:
        self._records += 1
        if cluster != self.open:
            self.judge.late.add(self._records)
        return self._records

    def acknowledge(self, key: TopicPartition, records: Sequence[int]) -> None:
        self.acknowledged[key] += records

    def written(self, leader: Leader) -> None:
        self.judge.look(leader)

    def go_on_without(self, leader: Leader) -> None:
        if self._is_nested:
            return
        self._is_nested = True
        if self.leader is leader and self.dice.random() < 0.7:
            self.leader = None
            self.stale.append(leader)
        for _ in range(self.dice.randrange(1, self.dice.choice((5, 30, 90)))):
            self.turn()
        self._is_nested = False

    # Turns.

    def run(self) -> None:
        """Raises Violation."""
        with _errors_raised():
            for _ in range(TROUBLED_TURNS):
                if self._is_at_rest:
                    break
                self.turn()
                self.faults.turn()
            self.faults.heal()
            for _ in range(LAST_TURNS):
                if self._is_at_rest:
                    break
                self.turn()
            else:
                node = self.judge.node
                raise Violation("C", f"no end: {node and (node.run, node.state, node.waits)}")
            self._settle()
            self.judge.end()

    @property
    def _is_at_rest(self) -> bool:
        node = self.judge.node
        is_idle = node is None or node.state in AT_REST or node.wanted is Wanted.PLAN
        return self.operator.is_finished and is_idle

    def turn(self) -> None:
        node = self.judge.node
        is_watched = node is not None and node.state is CutoverState.WATCHED
        self.fleet.wait(self.dice.choice(WATCHED_S if is_watched else STEPS_S))
        acts = [self._clients, self._workers, self._plan, self._brokers, self.operator.turn]
        acts += [self._lead, self._lead]
        self.dice.shuffle(acts)
        for act in acts:
            act()
            self.judge.watch()

    def _clients(self) -> None:
        self.told.turn()
        for writer in self.writers:
            writer.turn(self.clusters, self)
        for reader in self.readers:
            reader.turn(self.clusters, self.dice, self.time())

    def _workers(self) -> None:
        for worker in list(self.fleet.running()):
            if self.dice.random() < 0.9:
                worker.turn(self.dice)  # type: ignore[attr-defined]  # all are copiers

    def _plan(self) -> None:
        try:
            self.fleet.plan(self.dice)
        except InvariantViolated as error:
            raise Violation("I", str(error)) from error

    def _brokers(self) -> None:
        for cluster in self.clusters.values():
            if self.dice.random() < 0.3:
                cluster.acls.behind.clear()

    def _lead(self) -> None:
        if self.leader is None and self.dice.random() < 0.4:
            self.leader = Leader(self)
            self.leaders += 1
        for leader in (self.leader, *self.stale):
            if leader is not None:
                self._lead_on(leader)
        self.stale = [leader for leader in self.stale if not leader.knows]

    def _lead_on(self, leader: Leader) -> None:
        try:
            leader.turn()
        except ProcessEnded:
            leader.knows = True
            if self.leader is leader:
                self.leader = None

    def _settle(self) -> None:
        """Everybody stops, and everything is copied."""
        for writer in self.writers:
            writer.home = ""
        for _ in range(LAST_TURNS):
            self.turn()
            for writer in self.writers:
                writer.home = ""
            if self.judge.is_settled:
                return


class _Errors(logging.Handler):
    """An error in the log is a violation."""

    def emit(self, record: logging.LogRecord) -> None:
        cause = record.exc_info[1] if record.exc_info else None
        raise Violation("X", f"{record.getMessage()}: {cause!r}") from cause


@contextmanager
def _errors_raised() -> Iterator[None]:
    root, handler = logging.getLogger(), _Errors(logging.ERROR)
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.ERROR)
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(before)


def play(seed: int) -> History:
    """The history of a seed. Raises Violation."""
    history = History(seed)
    history.run()
    return history
