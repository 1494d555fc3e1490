"""Proof that a partition is still assigned to this worker: step (2) of the start of a copier.

`ureplicator_common.kafka.positions` has the reason: between the initialisation of a copier's own
transactional id and its first read of the positions, ZooKeeper must confirm, *after* the
initialisation, that the partition is still assigned to this worker. Hence `sync` first, then reads, in
this order and in the time of one request; that of the shares follows:

    workers/live/<id>         belongs to our session (else another process has our id)
    workers/known/<id>        the leader has recorded at least our slots (see below)
    assignments/<id>          lists the partition with the owner epoch that the copier was sent
    routes/<route>            the settings that the leader published
    shares/<id>               shares of byte limits, sent before the response: nothing starts without them
    topics/<route>/<topic>    where to copy to, where to start, whether a position was committed once

Without ZooKeeper there is no proof, hence no response: the request waits, in its order, until there is
one, or until its copier is gone. The same holds while the live node is missing or still that of our
former session: it is about to be written. A partition that fails the proof is refused, with its reason.

A worker that restarts with more slots has transactional ids that no successor would fence before the
leader has recorded them. The leader records them before it assigns any partition to the new process, and
after all it decided on an older snapshot: so once the record is there, the assignment is final with
respect to those decisions. A record that cannot be read shows nothing of this: it refuses all partitions,
with what to do, since nobody but operators knows what it said.

Besides the former owners a copier fences the leader's own id: the leader renews positions of partitions
without an owner (`ureplicator_controller.engines.position_renewal`), and may have been frozen meanwhile.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ureplicator_common.coordination import Coordination, Node, Unavailable
from ureplicator_common.model import (
    RENEWER,
    OwnerEpoch,
    Partition,
    Route,
    SessionId,
    WorkerId,
    transactional_id,
)
from ureplicator_common.znode_contents import Assignment, TopicIntent
from ureplicator_common.znodes.codec import UnreadableContent
from ureplicator_common.znodes.paths import Paths
from ureplicator_common.znodes.routes import decode_route
from ureplicator_common.znodes.topics import decode_intent
from ureplicator_common.znodes.workers import decode_assignment, decode_known_worker
from ureplicator_worker.engines.assignment import published_shares
from ureplicator_worker.lifeline.messages import (
    CopierId,
    Grant,
    ProofRequest,
    ProofResponse,
    PublishedSettings,
    PublishedShares,
)

logger = logging.getLogger(__name__)

RETRY_S = 0.2

T = TypeVar("T")
Nodes = Mapping[str, Node | None]
"""By path."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    copier: CopierId
    request: ProofRequest


class OwnershipProver:
    """One thread that serves requests in order and sends the responses by `respond`.

    `own_sessions` are all sessions of this process: a live node of one is not another process's.
    """

    def __init__(
        self,
        *,
        coordination: Coordination,
        paths: Paths,
        worker: WorkerId,
        slots: int,
        own_sessions: Callable[[], Iterable[SessionId]],
        respond: Callable[[CopierId, ProofResponse | PublishedShares], None],
    ) -> None:
        self._coordination = coordination
        self._paths = paths
        self._worker = worker
        self._slots = slots
        self._own_sessions = own_sessions
        self._respond = respond
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

    def request(self, copier: CopierId, request: ProofRequest) -> None:
        with self._changed:
            self._queue.append(_Waiting(copier, request))
            self._changed.notify_all()

    def cancel(self, copier: CopierId) -> None:
        """Drop the requests of a copier whose connection is closed."""
        with self._changed:
            self._queue = deque(waiting for waiting in self._queue if waiting.copier != copier)

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._stopping)
                if self._stopping:
                    return
            if not self.process_next():
                with self._changed:
                    self._changed.wait_for(lambda: self._stopping, RETRY_S)

    def process_next(self) -> bool:
        """Respond to the oldest request; False: it has to wait. True if there is none."""
        with self._changed:
            if not self._queue:
                return True
            waiting = self._queue[0]
        try:
            response = self.prove(waiting.request)
            shares = self._shares()
        except Unavailable as error:
            logger.info("copier %s waits for its proof: %s", waiting.copier, error)
            return False
        self._finish(waiting, response, shares)
        return True

    def _finish(
        self, waiting: _Waiting, response: ProofResponse, shares: PublishedShares | None
    ) -> None:
        with self._changed:
            if not self._queue or self._queue[0] is not waiting:
                return  # cancelled meanwhile
            self._queue.popleft()
        for partition, reason in response.refused.items():
            logger.warning("copier %s: %s refused: %s", waiting.copier, partition, reason)
        if shares is not None:
            self._respond(waiting.copier, shares)
        self._respond(waiting.copier, response)

    def prove(self, request: ProofRequest) -> ProofResponse:
        """Raises Unavailable if nothing can be proven now."""
        paths = self._paths
        routes = {part.route: paths.route(part.route) for part in request.partitions}
        topics = {part.key: paths.topic(part.key) for part in request.partitions}
        session = self._coordination.session()
        nodes = self._read(
            [
                paths.worker_live(self._worker),
                paths.worker_known(self._worker),
                paths.assignment(self._worker),
                *routes.values(),
                *topics.values(),
            ]
        )
        problem = self._check_live_node(nodes, session) or self._check_known_slots(nodes)
        if problem:
            return ProofResponse(request.request_id, {}, dict.fromkeys(request.partitions, problem))
        assignment = self._assignment(nodes)
        settings = {route: _settings(route, path, nodes[path]) for route, path in routes.items()}
        intents = {key: _decoded(path, nodes[path], decode_intent) for key, path in topics.items()}
        renewers = {
            r: transactional_id(fleet=self._paths.fleet, route=r, worker=RENEWER, slot=0)
            for r in settings
        }
        granted: dict[Partition, Grant] = {}
        refused: dict[Partition, str] = {}
        for partition, epoch in request.partitions.items():
            result = grant_or_refusal(
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
        return ProofResponse(request.request_id, granted, refused)

    def _read(self, paths: Sequence[str]) -> Nodes:
        return dict(zip(paths, self._coordination.read(paths), strict=True))

    def _check_live_node(self, nodes: Nodes, session: SessionId | None) -> str:
        """Reason to refuse everything; empty if the live node is our own: of the `session` that we had
        before it was read. Raises Unavailable."""
        node = nodes[self._paths.worker_live(self._worker)]
        if session is None:
            raise Unavailable("no session with ZooKeeper")
        if node is None or (node.stat.owner != session and node.stat.owner in self._own_sessions()):
            raise Unavailable("the live node is not written yet")
        if node.stat.owner != session:
            return f"worker {self._worker} is another process (session {node.stat.owner:#x})"
        return ""

    def _check_known_slots(self, nodes: Nodes) -> str:
        """Reason to refuse everything; empty if a successor would fence every transactional id of ours.

        Raises Unavailable until the leader has recorded them.
        """
        path = self._paths.worker_known(self._worker)
        node = nodes[path]
        try:
            recorded = 0 if node is None else decode_known_worker(node.data).max_slots
        except UnreadableContent as error:
            return f"{path} cannot be read ({error}): drain or restore the worker to write it anew"
        if recorded < self._slots:
            raise Unavailable(f"the leader has recorded {recorded} of {self._slots} slots")
        return ""

    def _assignment(self, nodes: Nodes) -> Mapping[Partition, tuple[OwnerEpoch, tuple[str, ...]]]:
        path = self._paths.assignment(self._worker)
        node = nodes[path]
        try:
            assignment = Assignment() if node is None else decode_assignment(node.data)
        except UnreadableContent as error:
            raise Unavailable(f"{path} cannot be read: {error}") from error
        return {p: (entry.owner_epoch, entry.fence) for p, entry in assignment.entries.items()}

    def _shares(self) -> PublishedShares | None:
        """Read after the assignment, which the leader writes after them. Raises Unavailable."""
        path = self._paths.slot_shares(self._worker)
        node = self._coordination.get(path)
        try:
            return None if node is None else published_shares(node)
        except UnreadableContent as error:
            raise Unavailable(f"{path} cannot be read: {error}") from error


def _settings(route: Route, path: str, node: Node | None) -> PublishedSettings | None:
    settings = _decoded(path, node, decode_route)
    if node is None or settings is None:
        return None
    return PublishedSettings(route, node.stat.mzxid, settings)


def _decoded(path: str, node: Node | None, decode: Callable[[bytes], T]) -> T | None:
    """One that cannot be read counts as missing, and grants nothing."""
    try:
        return None if node is None else decode(node.data)
    except UnreadableContent as error:
        logger.error("%s cannot be read: %s", path, error)
        return None


def grant_or_refusal(
    partition: Partition,
    epoch: OwnerEpoch,
    *,
    assignment: Mapping[Partition, tuple[OwnerEpoch, tuple[str, ...]]],
    settings: PublishedSettings | None,
    intent: TopicIntent | None,
    renewer: str,
) -> Grant | str:
    """The grant, or the reason to refuse it."""
    if partition not in assignment:
        return "not assigned to this worker any more"
    owner_epoch, fence = assignment[partition]
    if owner_epoch != epoch:
        return f"the owner epoch is {owner_epoch}, not {epoch}"
    if settings is None:
        return f"route {partition.route} is not published, or unreadable"
    if intent is None:
        return f"topic {partition.key} is not whitelisted any more, or unreadable"
    return Grant(
        owner_epoch=epoch,
        target_topic=intent.target_topic,
        fence=(*fence, renewer),
        initial=partition.number < intent.initial_partitions,
        had_position=partition.number in intent.had_position,
        source_topic_id=intent.source_topic_id,
        restarted=intent.restarted,
        settings=settings.settings,
        settings_version=settings.version,
    )
