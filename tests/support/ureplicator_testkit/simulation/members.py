"""What every process has towards ZooKeeper: a client whose session can end, be cut off, or freeze.

cut off for a while      SUSPENDED, then the same session, or LOST and a new one
session ended            LOST at once, a new one soon
frozen                   hears nothing; if its session ended meanwhile, it finds that out when
                         it thaws, maybe only with the request that it was about to make
answer lost              OutcomeUnknown, whether the write was made or not; mostly cut off, too
watches                  late by seconds, or lost
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ureplicator_common.coordination import EXPIRY_ROUNDING_S, Operation, SessionState, TreeCache
from ureplicator_common.coordination.memory import MemoryCoordination
from ureplicator_testkit.simulation.judge import JudgedStore
from ureplicator_testkit.simulation.kernel import Process, World

SESSION_TIMEOUT_S = 6.0
EXPIRES_S = SESSION_TIMEOUT_S + EXPIRY_ROUNDING_S
BACK_S = 1.0
CUT_S = 3.0


class Client(MemoryCoordination):
    """Each request is a point of its process."""

    def __init__(self, store: JudgedStore, member: Member) -> None:
        self._member = member
        super().__init__(store)

    def _request(self, path: str) -> None:
        self._member.point(path)
        super()._request(path)
        self._member.store.writer = self._member

    def transact(self, operations: Sequence[Operation]) -> None:
        if operations:
            self._member.point(operations[0].path, writes=True)
        chance, likely = self._member.world.chance, self._member.world.chances.lost_answer
        if operations and likely and chance.random() < likely:
            self._member.lose_answer(operations, applied=chance.random() < 0.5)
        super().transact(operations)

    def tree_cache(self, root: str, changed: Callable[[], None]) -> TreeCache:
        def heard() -> None:
            changed()
            self._member.heard()

        return super().tree_cache(root, heard)


class Member(Process):
    """A process with a session."""

    def __init__(self, world: World, name: str, store: JudgedStore) -> None:
        super().__init__(world, name)
        self.store = store
        self.client = Client(store, self)
        self._cut = 0
        self._stopped = 0

    def heard(self) -> None:
        """A tree cache changed."""

    def lose_answer(self, operations: Sequence[Operation], *, applied: bool) -> None:
        self.world.faults += 1
        self.world.note(
            self.name, "answer to %s lost, applied: %s", type(operations[0]).__name__, applied
        )
        self.client.lose_next_answer(applied=applied)
        if self.world.chance.random() < 0.7:
            self.world.later(0.0, lambda: self.cut(self.world.chance.random() * BACK_S))

    # Faults of the session.

    def cut(self, for_s: float) -> None:
        """No connection for so long; the servers give the session up in time."""
        if not self.alive or self.client.state() is not SessionState.CONNECTED:
            return
        self.world.note(self.name, "cut off from ZooKeeper for %.1f s", for_s)
        self.client.suspend()
        self._cut += 1
        cut, session = self._cut, self.client._session

        def expire() -> None:
            if self._cut == cut and self.client.state() is SessionState.SUSPENDED:
                self.store.expire(session)

        self.world.later(EXPIRES_S, expire)
        self.world.later(for_s, self.reconnect)

    def expire(self) -> None:
        """The servers give the session up though the process lives and is connected."""
        if self.alive and self.client.state() is SessionState.CONNECTED:
            self.world.note(self.name, "session ended")
            self.store.expire(self.client._session)
            self.world.later(self.world.chance.random() * BACK_S, self.reconnect)

    def reconnect(self) -> None:
        if self.alive and not self.frozen:
            self._cut += 1
            self.client.restore()

    def hold_watches(self, for_s: float, *, lost: bool) -> None:
        if not self.alive or self.frozen:
            return
        self.world.note(self.name, "watches %s for %.1f s", "lost" if lost else "late", for_s)
        self.client.hold_watches()
        self.world.later(for_s, self.client.drop_watches if lost else self.release_watches)

    def release_watches(self) -> None:
        if self.alive and not self.frozen:
            self.client.release_watches()

    # What its process does.

    def died(self) -> None:
        """The servers see a broken connection, and wait."""
        session = self.client._session
        self.client.hold_watches()
        self.world.later(EXPIRES_S, lambda: self.store.expire(session))
        self.world.later(EXPIRES_S, self._forget)

    def _forget(self) -> None:
        self.store.detach(self.client)

    def stopped(self) -> None:
        self.client.hold_watches()
        self._stopped += 1
        stopped, session = self._stopped, self.client._session

        def expire() -> None:
            if self.alive and self.frozen and self._stopped == stopped:
                self.store.expire(session)

        self.world.later(EXPIRES_S, expire)

    def continued(self) -> None:
        """Its client may find out about its session before the request goes out, or by it."""
        self.client.release_watches()
        if self.client.state() is SessionState.CONNECTED:
            return
        if self.world.chance.random() < 0.5:
            self.reconnect()
        else:
            self.world.later(self.world.chance.random() * BACK_S, self.reconnect)
