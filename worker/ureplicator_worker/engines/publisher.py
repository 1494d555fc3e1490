"""Nodes of a worker in ZooKeeper: live node, current state, loads, usage. All ephemeral.

Level-triggered: `publish` and friends only note the expected content, and one thread writes it, with
retries until it succeeded. A burst of changes is encoded once and becomes one write, and a write of
unknown outcome is followed by a read of the node.

    workers/live/<id>    at registration, and again under each new session
    current/<id>         when a partition's state, owner epoch or reason changes (`core.publishing`)
    loads/<id>           every 10 s: rates, positions, lag, time without progress
    usage/<id>           every 60 s: what was copied since the start, and the processor time for it

Identity is id + session. A node under our id is

    our session's           ours; set it if its content differs
    a former session's      of this process: replaced, in one transaction
    any other session's     for `workers/live/<id>`: the id is taken. A process that was killed leaves
                            its node until its session expires, so we wait for one session timeout
                            (and what servers round it up by), then give up through `on_taken`.
                            For the others, once the live node is ours: left over, replaced.

An id belongs to the process that registered it last. A process that lost its session must not return
to an id that another process has had in between, even if that one is gone again: the copiers of that
process may live and commit under the same transactional ids, which only the start of a process fences.
Live nodes vanish with their session, so `workers/registered/<id>` names the process by the session of
its first registration. A process that registers again checks it in the same transaction, and gives up
if it names another process.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ureplicator_common.clock import Clock
from ureplicator_common.coordination import (
    EXPIRY_ROUNDING_S,
    Check,
    Conflict,
    Coordination,
    Create,
    Delete,
    Node,
    Operation,
    OutcomeUnknown,
    SessionState,
    Set,
    Unavailable,
)
from ureplicator_common.errors import OperatingError
from ureplicator_common.model import Partition, SessionId, WorkerId
from ureplicator_common.znode_contents import CurrentState, LiveWorker, PartitionLoad, WorkerUsage
from ureplicator_common.znodes.codec import UnreadableContent
from ureplicator_common.znodes.paths import Paths
from ureplicator_common.znodes.workers import (
    decode_registration,
    encode_current,
    encode_live_worker,
    encode_loads,
    encode_registration,
    encode_usage,
)

logger = logging.getLogger(__name__)

RETRY_S = 0.2
CHECK_EVERY_S = 10.0
"""All nodes are read again this often, changed or not."""


class _Superseded(OperatingError):
    """Another process has registered this id since."""


class NodePublisher:
    """`on_registered` is called once, when the live node is ours for the first time; `on_taken` when another
    process has the id."""

    def __init__(
        self,
        *,
        coordination: Coordination,
        paths: Paths,
        worker: WorkerId,
        session_timeout_s: float,
        clock: Clock,
        on_registered: Callable[[], None],
        on_taken: Callable[[str], None],
    ) -> None:
        self._coordination = coordination
        self._worker = worker
        self._live_path = paths.worker_live(worker)
        self._registration_path = paths.worker_registration(worker)
        self._current_path = paths.current_state(worker)
        self._loads_path = paths.measures.load(worker)
        self._usage_path = paths.measures.usage(worker)
        self._wait_s = session_timeout_s + EXPIRY_ROUNDING_S
        self._clock = clock
        self._on_registered, self._on_taken = on_registered, on_taken
        self._live: LiveWorker | None = None
        self._no_capacity = ""
        self._leaving = False
        self._contents: dict[str, bytes] = {}
        self._unencoded: dict[str, Callable[[], bytes]] = {}
        self._done: dict[str, tuple[SessionId, bytes]] = {}
        self._sessions: set[SessionId] = set()
        self._taken_since_s: float | None = None
        self._checked_at_s = clock.monotonic_s()
        self._changed = threading.Condition()
        self._dirty = False
        self.registered = False
        self._stopping = False
        self._thread = threading.Thread(target=self._work, name="worker publisher", daemon=True)

    def start(self, live: LiveWorker) -> None:
        self.announce(live)
        self._thread.start()

    def announce(
        self,
        live: LiveWorker | None = None,
        *,
        no_capacity: str | None = None,
        leaving: bool = False,
    ) -> None:
        """Set the content of the live node, or that part of it; nothing is written before `live` is given.

        Two threads do so. Each change is followed by a write of what both have announced by then.
        """
        with self._changed:
            self._live = announced = live or self._live
            if no_capacity is not None:
                self._no_capacity = no_capacity
            self._leaving = self._leaving or leaving
        if announced is not None:
            self._set(
                self._live_path,
                lambda: encode_live_worker(
                    replace(
                        self._live or announced,
                        no_capacity=self._no_capacity,
                        leaving=self._leaving,
                    )
                ),
            )

    def publish(self, current: CurrentState) -> None:
        self._set(self._current_path, lambda: encode_current(current))

    def publish_measures(
        self,
        loads: Mapping[Partition, PartitionLoad] | None = None,
        usage: WorkerUsage | None = None,
    ) -> None:
        """Set what is given."""
        if loads is not None:
            self._set(self._loads_path, lambda: _encoded_loads(loads))
        if usage is not None:
            self._set(self._usage_path, lambda: encode_usage(usage))

    def refresh(self) -> None:
        """Read and write all nodes again: the session is new or was suspended."""
        with self._changed:
            self._done.clear()
            self._dirty = True
            self._changed.notify_all()

    def session_changed(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            self.refresh()

    def own_sessions(self) -> frozenset[SessionId]:
        """All sessions of this process under which it wrote, the present one included."""
        with self._changed:
            return frozenset(self._sessions)

    def flush(self, timeout_s: float) -> bool:
        """Wait until all is written; False if it took longer."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._dirty, timeout_s)

    def close(self) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(RETRY_S * 5)

    def _set(self, path: str, encode: Callable[[], bytes]) -> None:
        with self._changed:
            self._unencoded[path] = encode
            self._dirty = True
            self._changed.notify_all()

    def _work(self) -> None:
        while True:
            with self._changed:
                if not self._changed.wait_for(lambda: self._dirty or self._stopping, CHECK_EVERY_S):
                    self._done.clear()
                if self._stopping:
                    return
            if not self.write_pending():
                with self._changed:
                    self._changed.wait_for(lambda: self._stopping, RETRY_S)

    def write_pending(self) -> bool:
        """Write what differs from the expected content; False: to be retried soon."""
        now_s = self._clock.monotonic_s()
        with self._changed:
            if (
                now_s - self._checked_at_s >= CHECK_EVERY_S
            ):  # also while changes come faster than that
                self._checked_at_s = now_s
                self._done.clear()
            unencoded, self._unencoded = self._unencoded, {}
        self._contents |= {path: encode() for path, encode in unencoded.items()}
        written = self._write_all(self._contents)
        with self._changed:
            self._dirty = not written or bool(self._unencoded)
            self._changed.notify_all()
        return written

    def _write_all(self, contents: Mapping[str, bytes]) -> bool:
        """Live node first: the others do not count without it. True if all is written."""
        try:
            if not self._register(contents[self._live_path]):
                return False
            for path in contents.keys() - {self._live_path}:
                self._write(path, contents[path], replace=True)
        except (Unavailable, OutcomeUnknown, Conflict) as error:
            logger.debug("not published yet: %s", error)
            with self._changed:
                self._done.clear()
            return False
        return True

    def _register(self, data: bytes) -> bool:
        try:
            owner = self._write(self._live_path, data, replace=False)
        except _Superseded as error:
            self._on_taken(str(error))
            return False
        if owner is not None:
            self._wait_for(owner)
            return False
        self._taken_since_s = None
        if not self.registered:
            self.registered = True
            self._on_registered()
        return True

    def _registration(self, session: SessionId) -> Operation:
        """The operation on the registration that goes with a new live node. Raises _Superseded."""
        node = self._coordination.get(self._registration_path)
        if node is None:
            return Create(self._registration_path, encode_registration(session))
        if self._is_own(node):
            return Check(self._registration_path, node.stat.version)
        if self.registered:
            raise _Superseded(f"another process has registered the id {self._worker} since")
        return Set(self._registration_path, encode_registration(session), node.stat.version)

    def _is_own(self, registration: Node) -> bool:
        """True if it names this process; one that cannot be read names none and is replaced."""
        try:
            return decode_registration(registration.data) in self.own_sessions()
        except UnreadableContent:
            return False

    def _wait_for(self, owner: SessionId) -> None:
        now_s = self._clock.monotonic_s()
        if self._taken_since_s is None:
            self._taken_since_s = now_s
            logger.warning(
                "worker id %s is taken by session %#x: waiting up to %.0f s for its end",
                self._worker,
                owner,
                self._wait_s,
            )
        elif now_s - self._taken_since_s > self._wait_s:
            self._on_taken(
                f"another live worker has the id {self._worker}: stop it, or give this one another --id"
            )

    def _write(self, path: str, data: bytes, *, replace: bool) -> SessionId | None:
        """Make the node ours with that content. Returns the owner if that is another process."""
        session = self._coordination.session()
        if session is None:
            raise Unavailable("no session with ZooKeeper")
        with self._changed:
            self._sessions.add(session)
            if self._done.get(path) == (session, data):
                return None
        node = self._coordination.get(path)
        if node is None or node.stat.owner != session:
            if not (node is None or replace or node.stat.owner in self._sessions):
                return node.stat.owner
            self._coordination.transact(self._replacement(path, data, node, session))
        elif node.data != data:
            self._coordination.transact([Set(path, data, node.stat.version)])
        with self._changed:
            self._done[path] = (session, data)
        return None

    def _replacement(
        self, path: str, data: bytes, node: Node | None, session: SessionId
    ) -> Sequence[Operation]:
        """Operations that put a node of this session in the place of the present one."""
        registration = [self._registration(session)] if path == self._live_path else []
        former = [Delete(path, node.stat.version)] if node is not None else []
        return [*registration, *former, Create(path, data, ephemeral=True)]


def _encoded_loads(loads: Mapping[Partition, PartitionLoad]) -> bytes:
    """Loads that do not fit into a node are left out: they count as unknown."""
    try:
        return encode_loads(loads)
    except ValueError as error:
        logger.warning("loads are not published: %s", error)
        return encode_loads({})
