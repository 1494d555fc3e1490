"""A process's ZooKeeper client, whose session can expire, be disconnected or freeze.

disconnected             SUSPENDED, then the same session again, or LOST and a new one
session expired          LOST at once, a new one soon
frozen                   receives nothing; if its session expired meanwhile, it learns so when it
                         thaws, maybe only by the request that it was about to send
response lost            OutcomeUnknown, whether the write was made or not; mostly disconnected, too
watches                  late by seconds, or lost
server lags behind       reads show an older tree, until a `sync` or a write
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ureplicator_common.coordination import (
    EXPIRY_ROUNDING_S,
    Operation,
    SessionState,
    TreeCache,
    no_leaf,
)
from ureplicator_testkit.control.memory_coordination import MemoryCoordination
from ureplicator_testkit.simulation.judge import JudgedStore
from ureplicator_testkit.simulation.kernel import Process, World

SESSION_TIMEOUT_S = 6.0
EXPIRES_S = SESSION_TIMEOUT_S + EXPIRY_ROUNDING_S
BACK_S = 1.0


class Client(MemoryCoordination):
    """Each request is a point of its process."""

    def __init__(self, store: JudgedStore, member: SessionProcess) -> None:
        self._member = member
        super().__init__(store)

    def _request(self, path: str) -> None:
        self._member.point(path)
        super()._request(path)
        self._member.store.writer = self._member

    def transact(self, operations: Sequence[Operation]) -> None:
        if operations:
            self._member.point(operations[0].path, writes=True)
        chance, likely = self._member.world.chance, self._member.world.chances.lost_response
        if operations and likely and chance.random() < likely:
            self._member.lose_response(operations, applied=chance.random() < 0.5)
        super().transact(operations)

    def tree_cache(
        self, root: str, changed: Callable[[], None], *, is_leaf: Callable[[str], bool] = no_leaf
    ) -> TreeCache:
        def tree_changed() -> None:
            changed()
            self._member.tree_changed()

        return super().tree_cache(root, tree_changed, is_leaf=is_leaf)


class SessionProcess(Process):
    """A process with a ZooKeeper session."""

    def __init__(self, world: World, name: str, store: JudgedStore) -> None:
        super().__init__(world, name)
        self.store = store
        self.client = Client(store, self)
        self._cut = 0
        self._stopped = 0

    def tree_changed(self) -> None:
        """Hook: a tree cache changed."""

    def lose_response(self, operations: Sequence[Operation], *, applied: bool) -> None:
        self.world.faults += 1
        self.world.note(
            self.name, "response to %s lost, applied: %s", type(operations[0]).__name__, applied
        )
        self.client.lose_next_response(applied=applied)
        if self.world.chance.random() < 0.7:
            self.world.later(0.0, lambda: self.cut(self.world.chance.random() * BACK_S))

    # Faults of the session.

    def cut(self, for_s: float) -> None:
        """Disconnect for a time; the servers expire the session meanwhile if it is long enough."""
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

    def fall_behind(self, for_s: float) -> None:
        """Its server does: watches are late, too."""
        if not self.alive or self.frozen:
            return
        self.world.note(self.name, "its server lags behind for %.1f s", for_s)
        self.client.fall_behind()
        self.client.hold_watches()
        self.world.later(for_s, self._catch_up)

    def _catch_up(self) -> None:
        self.client.catch_up()
        self.release_watches()

    def release_watches(self) -> None:
        if self.alive and not self.frozen:
            self.client.release_watches()

    # Hooks of the process.

    def died(self) -> None:
        """The servers see a broken connection and wait for the session timeout."""
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
        """The client may learn of its session before the pending request is sent, or by it."""
        self.client.release_watches()
        if self.client.state() is SessionState.CONNECTED:
            return
        if self.world.chance.random() < 0.5:
            self.reconnect()
        else:
            self.world.later(self.world.chance.random() * BACK_S, self.reconnect)
