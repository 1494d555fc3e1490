"""One history from a seed."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random

from ureplicator_common.cutovers import CutoverState, FenceKind
from ureplicator_common.kafka.groups import CommittedOffset, TopicPartition
from ureplicator_common.model import Partition, Route, TopicKey, TopicState, WorkerId
from ureplicator_controller.core.cutover.states import AT_REST, BEFORE_OPEN
from ureplicator_testkit.control.worker_process import InvariantViolated
from ureplicator_testkit.cutover_histories.clients import Reader, Writer
from ureplicator_testkit.cutover_histories.clusters import BOB, CAROL, DAVE, Cluster, first_rights
from ureplicator_testkit.cutover_histories.copying import TOPICS, CopyingFleet
from ureplicator_testkit.cutover_histories.judge import Judge, Violation
from ureplicator_testkit.cutover_histories.leaders import Chances, Leader, ProcessEnded
from ureplicator_testkit.cutover_histories.logs import Log
from ureplicator_testkit.cutover_histories.operators import Operator, Run
from ureplicator_testkit.kafka.memory_groups import MemoryGroup

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
        self.writers = self._first_writers()
        self.operator = Operator(self, self._script() if script is None else script)
        self.leader: Leader | None = None
        self.leaders = 0
        self.stale: list[Leader] = []
        self._is_nested = False
        self._likely: dict[Callable[[], None], float] = {}
        if script is None:
            self._draw_faults()
        for id in ("a", "b"):
            self.fleet.start_worker(id)

    # What is drawn.

    def _first_writers(self) -> list[Writer]:
        writers = [Writer(BOB, "a"), Writer(CAROL, "a", transactional=True)]
        if self.kind is FenceKind.NONE and self.dice.random() < 0.5:
            writers[0].obeys = False
        return [*writers, Writer(DAVE, "a", obeys=False)]

    def _script(self) -> Sequence[Run]:
        dice = self.dice
        count = dice.choice((1, 2, 2, 3, 4))
        return [
            Run(
                self.kind
                if dice.random() < 0.9 or self.kind is FenceKind.COMMAND
                else FenceKind.NONE,
                rehearses=dice.random() < 0.1,
                way_back=number + 1 < count or dice.random() < 0.8,
                waits_for_groups=dice.random() < 0.3,
                aborts_transactions=dice.random() < 0.3,
                abort_after_s=dice.choice((0.1, 0.5, 2.0, 8.0)) if dice.random() < 0.35 else None,
                limit_s=dice.choice((5.0, 20.0, 60.0)),
                impatient=dice.random() < 0.1,
                early=dice.random() < 0.4,
            )
            for number in range(count)
        ]

    @property
    def count(self) -> dict[str, int]:
        """Counters of what happened."""
        return {
            "epochs": self.leaders,
            "records": self._records,
            "late records": len(self.judge.late),
            **self.judge.count,
        }

    def _draw_faults(self) -> None:
        dice = self.dice
        self.chances.kill = dice.choice((0.0, 0.0, 0.01, 0.05))
        self.chances.freeze = dice.choice((0.0, 0.0, 0.01, 0.04))
        self.chances.fail = dice.choice((0.0, 0.0, 0.02, 0.1))
        self.chances.lose = dice.choice((0.0, 0.0, 0.05, 0.2))
        for cluster in self.clusters.values():
            cluster.acls.lag = dice.choice((0.0, 0.5))
        self._likely = {
            self._cut_off: dice.choice((0.0, 0.0, 0.03)),
            self._lose_worker: dice.choice((0.0, 0.02, 0.05)),
            self._tamper: dice.choice((0.0, 0.0, 0.0, 0.03)),
            self._trouble: dice.choice((0.0, 0.0, 0.0, 0.0, 0.01)),
            self._stray_member: dice.choice((0.0, 0.0, 0.05)),
            self._lose_coordinator: dice.choice((0.0, 0.0, 0.05)),
        }
        self.fleet.pace = dice.choice((0.3, 0.9))
        for reader in self.readers:
            if dice.random() < 0.5:
                group = MemoryGroup({("t", 0): CommittedOffset(dice.randrange(3), "m")})
                self.clusters["b"].groups.groups[reader.id] = group

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

    def is_copied(self, route: Route) -> bool:
        """True if every partition of the route is copied, as plans ask for."""
        seen = self.fleet.contents().topics
        keys = [TopicKey(route, topic) for topic in sorted(TOPICS) if topic not in self.troubled]
        if any(key not in seen or seen[key].value.state is not TopicState.ACTIVE for key in keys):
            return False
        copied = {
            partition
            for worker in self.fleet.running()
            for partition, copy in worker.copies.items()
            if copy.stage == "copying"
        }
        return copied.issuperset(
            Partition(route, key.topic, number)
            for key in keys
            for number in range(seen[key].value.partitions)
        )

    @property
    def copies_back(self) -> bool:
        """True if the open cluster is copied to the other one."""
        node = self.judge.node
        if node is None or node.plan.route.target != self.open:
            return node is None or node.state is CutoverState.ABORTED
        return node.plan.way_back

    @property
    def are_groups_over(self) -> bool:
        return all(reader.home == self.open for reader in self.readers)

    def stop_writers(self) -> None:
        for writer in self.writers:
            if writer.obeys:
                writer.home = ""

    @property
    def writers_stand(self) -> bool:
        return not any(writer.let_in or writer.open for writer in self.writers if writer.obeys)

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
                self._faults()
            self._heal()
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
        return self.operator.is_finished and (node is None or node.state in AT_REST)

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
        self._tell_clients()
        for writer in self.writers:
            writer.turn(self.clusters, self)
        for reader in self.readers:
            reader.turn(self.clusters, self.dice, self.time())

    def _tell_clients(self) -> None:
        node = self.judge.node
        if node is None or not (node.opened_ms or node.state is CutoverState.ABORTED):
            home = self.open if node is None else ""
        else:
            home = self.open
        for writer in self.writers:
            is_to_move = home and writer.home != home
            if is_to_move and self.dice.random() < (0.3 if writer.obeys else 0.05):
                writer.home = home if self._may_move(writer) else writer.home
        for reader in self.readers:
            self._tell_reader(reader)

    @property
    def _starts(self) -> bool:
        return self.operator.phase in ("stops", "runs") and not self.judge_has_run

    @property
    def judge_has_run(self) -> bool:
        node, request = self.judge.node, self.operator.request
        return node is not None and request is not None and node.run == request.run

    def _tell_reader(self, reader: Reader) -> None:
        node, dice = self.judge.node, self.dice
        if node is None:
            return
        is_left = reader.home != self.open
        if is_left and reader.goes_on and (dice.random() < 0.3 or node.state not in BEFORE_OPEN):
            reader.goes_on = dice.random() < 0.7
        elif is_left and not reader.goes_on:
            is_exact = self.judge.is_exact(reader)
            if (is_exact and dice.random() < 0.3) or node.state is CutoverState.DONE:
                reader.home, reader.goes_on = self.open, True
        elif (
            not is_left
            and node.plan.waits_for_groups
            and node.fencing
            and node.state in BEFORE_OPEN
        ):
            reader.goes_on = reader.goes_on and dice.random() < 0.7
        elif not is_left and dice.random() < 0.1:
            reader.goes_on = True

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

    # Faults.

    def _faults(self) -> None:
        for fault, likely in self._likely.items():
            if self.dice.random() < likely:
                fault()

    def _cut_off(self) -> None:
        """ZooKeeper is there for the leader, or is not."""
        if self.leader is None:
            return
        client = self.leader.client
        if client.session() is None:
            client.restore()
        else:
            client.suspend()

    def _lose_worker(self) -> None:
        """Freeze one, thaw one, or cut one off while its copiers go on."""
        fleet, dice = self.fleet, self.dice
        frozen = [worker for worker in fleet.copiers if worker.frozen and not worker.dead]
        running = [worker for worker in fleet.copiers if worker.runs]
        if frozen and dice.random() < 0.5:
            thawed = dice.choice(frozen)
            thawed.deaf = dice.randrange(6)
            fleet.thaw(thawed)
        elif running:
            worker = dice.choice(running)
            if dice.random() < 0.3:
                fleet.expire(worker)
                worker.deaf = dice.randrange(1, 20)
            else:
                fleet.freeze(worker)
        self._start_missing()

    def _may_move(self, writer: Writer) -> bool:
        return self.kind is not FenceKind.NONE or bool(writer.home) or not self._starts

    def _start_missing(self) -> None:
        """A supervisor starts another process of an id, later."""
        for id in ("a", "b"):
            alive = [each for each in self.fleet.copiers if each.id == id and each.runs]
            live = self.fleet.paths.worker_live(WorkerId(id))
            if not alive and self.dice.random() < 0.5 and self.fleet.store.node(live) is None:
                self.fleet.start_worker(id)

    def _tamper(self) -> None:
        self.operator.tamper()

    def _trouble(self) -> None:
        self.operator.trouble()

    def _stray_member(self) -> None:
        """A consumer joins a group at the cluster that is not open, or leaves it."""
        reader = self.dice.choice(self.readers)
        if reader.home == self.open:
            group = self.other.groups.groups.setdefault(reader.id, MemoryGroup())
            group.state = "Empty" if group.state == "Stable" else "Stable"

    def _lose_coordinator(self) -> None:
        """The coordinator of a group does not respond, or does again."""
        cluster = self.clusters[self.dice.choice(CLUSTERS)]
        cluster.groups.failing ^= {self.dice.choice(self.readers).id}

    def _heal(self) -> None:
        self.chances.stop()
        if self.leader is not None:
            self.leader.client.restore()
        for worker in self.fleet.copiers:
            if worker.frozen:
                self.fleet.thaw(worker)
        for _ in range(16):
            self._start_missing()
        for reader in self.readers:
            group = self.clusters[self.beside(reader.home)].groups.groups.get(reader.id)
            if group is not None:
                group.state = "Empty"
        for cluster in self.clusters.values():
            cluster.acls.lag = 0.0
            cluster.groups.failing.clear()

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
