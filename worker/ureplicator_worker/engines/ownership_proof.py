"""The driver's proof that a partition is still ours: step (2) of the start of a copier.

`ureplicator_common.kafka.positions` tells why: between the initialisation of a copier's own
transactional id and its first look at the positions, somebody must have seen in ZooKeeper, *after*
the initialisation, that the partition is still given to this worker. Hence `sync` first, then reads:

    workers/live/<id>         belongs to our session (else another process has our name)
    workers/known/<id>        the leader has noted at least our slots (see below)
    assignments/<id>          lists the partition with the owner epoch that the copier was told
    routes/<route>            the settings that the leader published
    topics/<route>/<topic>    where to copy to, where to begin, whether there was a position once

Without ZooKeeper there is no proof, hence no answer: the ask waits, in its turn, until there is one,
or until its copier is gone. A live node that is missing, or still our former session's, is the same
case: it is about to be written. What fails the proof is refused, each partition with its reason.

A worker that restarts with more slots has transactional ids that nobody would fence before the leader
has noted them. It notes them before it gives any partition, and after everything it decided on an older
picture: so whoever waits for the note finds its assignment as those decisions left it.

Besides the former owners a copier fences the leader's own id: the leader commits positions that nobody
owns once more (`ureplicator_controller.engines.position_renewal`), and may have frozen while it did.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from ureplicator_common import znodes
from ureplicator_common.coordination import Coordination, Unavailable
from ureplicator_common.model import (
    RENEWER,
    Assignment,
    OwnerEpoch,
    Partition,
    Route,
    RouteSettings,
    SessionId,
    TopicIntent,
    TopicKey,
    WorkerId,
    transactional_id,
)
from ureplicator_worker.lifeline.messages import CopierId, Grant, ProofRequest, ProofResponse

logger = logging.getLogger(__name__)

RETRY_S = 0.2

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Waiting:
    copier: CopierId
    ask: ProofRequest


class OwnershipProver:
    """One thread that answers asks in their order through `answer(copier, go)`.

    `formers` are sessions that this process had before: a live node of theirs is not a stranger's.
    """

    def __init__(
        self,
        *,
        coordination: Coordination,
        paths: znodes.Paths,
        worker: WorkerId,
        slots: int,
        formers: Callable[[], Iterable[SessionId]],
        answer: Callable[[CopierId, ProofResponse], None],
    ) -> None:
        self._coordination = coordination
        self._paths = paths
        self._worker = worker
        self._slots = slots
        self._formers = formers
        self._answer = answer
        self._queue: deque[_Waiting] = deque()
        self._changed = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._work, name="worker proof", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(RETRY_S * 5)

    def ask(self, copier: CopierId, ask: ProofRequest) -> None:
        with self._changed:
            self._queue.append(_Waiting(copier, ask))
            self._changed.notify_all()

    def forget(self, copier: CopierId) -> None:
        """The copier's connection has ended: nobody waits for its answers."""
        with self._changed:
            self._queue = deque(one for one in self._queue if one.copier != copier)

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._stopping)
                if self._stopping:
                    return
            if not self.turn():
                with self._changed:
                    self._changed.wait_for(lambda: self._stopping, RETRY_S)

    def turn(self) -> bool:
        """Answer the oldest ask; False: it has to wait. Nothing to do is True."""
        with self._changed:
            if not self._queue:
                return True
            waiting = self._queue[0]
        try:
            go = self.prove(waiting.ask)
        except Unavailable as error:
            logger.info("copier %s waits for its proof: %s", waiting.copier, error)
            return False
        self._finish(waiting, go)
        return True

    def _finish(self, waiting: _Waiting, go: ProofResponse) -> None:
        with self._changed:
            if not self._queue or self._queue[0] is not waiting:
                return  # forgotten meanwhile
            self._queue.popleft()
        for partition, reason in go.refused.items():
            logger.warning("copier %s is refused %s: %s", waiting.copier, partition, reason)
        self._answer(waiting.copier, go)

    def prove(self, ask: ProofRequest) -> ProofResponse:
        """Raises Unavailable if nothing can be proven now."""
        stranger = self._look_at_live_node()
        if stranger:
            return ProofResponse(ask.request_id, {}, dict.fromkeys(ask.partitions, stranger))
        self._look_at_slots()
        assignment = self._assignment()
        settings = {r: self._settings(r) for r in {p.route for p in ask.partitions}}
        intents = {k: self._intent(k) for k in {p.key for p in ask.partitions}}
        renewers = {
            r: transactional_id(fleet=self._paths.fleet, route=r, worker=RENEWER, slot=0)
            for r in settings
        }
        granted: dict[Partition, Grant] = {}
        refused: dict[Partition, str] = {}
        for partition, epoch in ask.partitions.items():
            result = judge(
                partition,
                epoch,
                assignment=assignment,
                settings=settings[partition.route],
                intent=intents[partition.key],
                renewer=renewers[partition.route],
            )
            if isinstance(result, Grant):
                granted[partition] = result
            else:
                refused[partition] = result
        return ProofResponse(ask.request_id, granted, refused)

    def _look_at_live_node(self) -> str:
        """Why nobody may believe us; empty if the live node is our own."""
        path = self._paths.worker_live(self._worker)
        self._coordination.sync(path)
        session = self._coordination.session()
        node = self._coordination.get(path)
        if session is None:
            raise Unavailable("no session with ZooKeeper")
        if node is None or (node.stat.owner != session and node.stat.owner in self._formers()):
            raise Unavailable("the live node is not written yet")
        if node.stat.owner != session:
            return f"worker {self._worker} is another process (session {node.stat.owner:#x})"
        return ""

    def _look_at_slots(self) -> None:
        """Raises Unavailable until every transactional id of ours would be fenced by a successor."""
        node = self._coordination.get(self._paths.worker_known(self._worker))
        noted = 0 if node is None else znodes.decode_known_worker(node.data).max_slots
        if noted < self._slots:
            raise Unavailable(f"the leader has noted {noted} of our {self._slots} slots")

    def _assignment(self) -> Mapping[Partition, tuple[OwnerEpoch, tuple[str, ...]]]:
        path = self._paths.assignment(self._worker)
        node = self._coordination.get(path)
        try:
            assignment = Assignment() if node is None else znodes.decode_assignment(node.data)
        except znodes.UnreadableContent as error:
            raise Unavailable(f"{path} cannot be read: {error}") from error
        return {p: (entry.owner_epoch, entry.fence) for p, entry in assignment.entries.items()}

    def _settings(self, route: Route) -> RouteSettings | None:
        return self._read(self._paths.route(route), znodes.decode_route)

    def _intent(self, key: TopicKey) -> TopicIntent | None:
        return self._read(self._paths.topic(key), znodes.decode_intent)

    def _read(self, path: str, decode: Callable[[bytes], T]) -> T | None:
        """A node that cannot be read is taken for a missing one: it grants nothing."""
        node = self._coordination.get(path)
        try:
            return None if node is None else decode(node.data)
        except znodes.UnreadableContent as error:
            logger.error("%s cannot be read: %s", path, error)
            return None


def judge(
    partition: Partition,
    epoch: OwnerEpoch,
    *,
    assignment: Mapping[Partition, tuple[OwnerEpoch, tuple[str, ...]]],
    settings: RouteSettings | None,
    intent: TopicIntent | None,
    renewer: str,
) -> Grant | str:
    """The right to copy, or why there is none."""
    if partition not in assignment:
        return "it is not assigned to this worker any more"
    owner_epoch, fence = assignment[partition]
    if owner_epoch != epoch:
        return f"its owner epoch is {owner_epoch}, not {epoch}"
    if settings is None:
        return f"route {partition.route} is not published, or unreadable"
    if intent is None:
        return f"topic {partition.key} is not whitelisted any more, or unreadable"
    return Grant(
        owner_epoch=epoch,
        target_topic=intent.target_topic or settings.target_topic(partition.topic),
        fence=(*fence, renewer),
        initial=partition.number < intent.initial_partitions,
        had_position=partition.number in intent.had_position,
        source_topic_id=intent.source_topic_id,
        restarted=intent.restarted,
        settings=settings,
    )
