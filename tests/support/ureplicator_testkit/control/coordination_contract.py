"""Contract of every `Coordination`: one suite, run over the twin in memory and over real ZooKeeper.

A test module names a subclass of `CoordinationContract` and gives it a fixture `ensemble`. Waiting
is polling: the twin is done at once, the real one within the deadline.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pytest

from ureplicator_common.coordination import (
    TRANSACTION_LIMIT_BYTES,
    Check,
    Conflict,
    ConflictReason,
    Coordination,
    Create,
    Delete,
    Node,
    Operation,
    SessionState,
    Set,
    TreeCache,
    Unavailable,
)
from ureplicator_common.coordination.edit import Edit, edit
from ureplicator_testkit.servers.processes import eventually

DEADLINE_S = 10.0


class Ensemble(Protocol):
    """The servers, and a way to expire the session of a client."""

    def client(self) -> Coordination:
        """A new, connected client; closed by the fixture if the test does not."""
        ...

    def expire(self, client: Coordination) -> None:
        """The session is expired, and the client has a new one when this returns."""
        ...


@dataclass
class Calls:
    """Counts calls of `changed()`, and keeps the states that a listener received."""

    changes: int = 0
    states: list[SessionState] = field(default_factory=list)

    def changed(self) -> None:
        self.changes += 1

    def until_more_than(self, seen: int, what: str) -> None:
        eventually(lambda: self.changes > seen, DEADLINE_S, what)


def shows(cache: TreeCache, expected: Callable[[dict[str, bytes]], bool]) -> bool:
    try:
        return expected({path: node.data for path, node in cache.nodes().items()})
    except Unavailable:
        return False


def until_shown(cache: TreeCache, expected: dict[str, bytes]) -> None:
    eventually(
        lambda: shows(cache, lambda found: found == expected),
        DEADLINE_S,
        f"the tree cache shows {expected}",
    )


class CoordinationContract:
    """Paths begin at `root`, which exists, is empty, and belongs to one test."""

    @pytest.fixture
    def root(self, client: Coordination, request: pytest.FixtureRequest) -> str:
        path = f"/contract/{request.node.name.replace('/', '-')}"
        client.ensure(path)
        return path

    @pytest.fixture
    def client(self, ensemble: Ensemble) -> Coordination:
        return ensemble.client()

    # --- Nodes

    def test_a_created_node_is_read_back(self, client: Coordination, root: str) -> None:
        client.transact([Create(f"{root}/a", b"one")])
        node = client.get(f"{root}/a")
        assert node is not None
        assert node.data == b"one"
        assert node.stat.version == 0
        assert node.stat.owner == 0
        assert node.stat.czxid == node.stat.mzxid > 0

    def test_a_missing_node_is_none_and_has_no_children(
        self, client: Coordination, root: str
    ) -> None:
        assert client.get(f"{root}/none") is None
        assert client.children(f"{root}/none") == []

    def test_children_are_sorted_names_of_one_level(self, client: Coordination, root: str) -> None:
        for name in ("b", "a", "c", "b/below"):
            client.transact([Create(f"{root}/{name}", b"")])
        assert client.children(root) == ["a", "b", "c"]

    def test_each_set_grows_the_version_by_one_and_mzxid(
        self, client: Coordination, root: str
    ) -> None:
        client.transact([Create(f"{root}/a", b"0")])
        before = self._node(client, f"{root}/a")
        client.transact([Set(f"{root}/a", b"1", version=0)])
        client.transact([Create(f"{root}/elsewhere", b"")])
        client.transact([Set(f"{root}/a", b"2", version=1)])
        after = self._node(client, f"{root}/a")
        assert (after.data, after.stat.version) == (b"2", 2)
        assert after.stat.czxid == before.stat.czxid
        assert after.stat.mzxid > self._node(client, f"{root}/elsewhere").stat.mzxid

    def test_a_child_changes_nothing_in_its_parent(self, client: Coordination, root: str) -> None:
        before = self._node(client, root)
        client.transact([Create(f"{root}/a", b"")])
        assert self._node(client, root) == before

    def test_a_recreated_node_starts_at_version_zero(self, client: Coordination, root: str) -> None:
        client.transact([Create(f"{root}/a", b"")])
        client.transact([Set(f"{root}/a", b"x", version=0)])
        old = self._node(client, f"{root}/a")
        client.transact([Delete(f"{root}/a", version=1), Create(f"{root}/a", b"y")])
        new = self._node(client, f"{root}/a")
        assert new.stat.version == 0
        assert new.stat.czxid > old.stat.mzxid

    def test_ensure_creates_all_parents_and_may_be_repeated(
        self, client: Coordination, root: str
    ) -> None:
        client.ensure(f"{root}/deep/er/still")
        client.transact([Set(f"{root}/deep", b"kept", version=0)])
        client.ensure(f"{root}/deep/er/still")
        client.ensure(f"{root}/deep/er/other")
        assert self._node(client, f"{root}/deep").data == b"kept"
        assert client.children(f"{root}/deep/er") == ["other", "still"]

    # --- Transactions

    @pytest.mark.parametrize(
        ("refused", "reason"),
        [
            (Set("none", b"", version=-1), ConflictReason.NO_NODE),
            (Delete("none"), ConflictReason.NO_NODE),
            (Check("none", version=-1), ConflictReason.NO_NODE),
            (Check("none", version=0), ConflictReason.NO_NODE),
            (Set("twice", b"", version=0), ConflictReason.WRONG_VERSION),
            (Set("twice", b"", version=2), ConflictReason.WRONG_VERSION),
            (Delete("twice", version=0), ConflictReason.WRONG_VERSION),
            (Check("twice", version=0), ConflictReason.WRONG_VERSION),
            (Check("twice", version=2), ConflictReason.WRONG_VERSION),
            (Create("twice", b""), ConflictReason.NODE_EXISTS),
            (Create("none/below", b""), ConflictReason.NO_PARENT),
            (Create("mine/below", b""), ConflictReason.EPHEMERAL_PARENT),
            (Delete("parent"), ConflictReason.HAS_CHILDREN),
        ],
    )
    def test_one_refused_operation_undoes_all_and_is_reported(
        self, client: Coordination, root: str, refused: Operation, reason: ConflictReason
    ) -> None:
        client.transact(
            [
                Create(f"{root}/twice", b""),
                Set(f"{root}/twice", b"as it was", version=0),
                Create(f"{root}/parent", b""),
                Create(f"{root}/parent/child", b""),
                Create(f"{root}/mine", b"", ephemeral=True),
            ]
        )
        guilty = _below(root, refused)
        before, after = Create(f"{root}/before", b""), Create(f"{root}/after", b"")
        with pytest.raises(Conflict) as conflict:
            client.transact([before, Set(f"{root}/parent", b"changed", 0), guilty, after])
        assert conflict.value.operation == guilty
        assert conflict.value.reason == reason
        assert str(conflict.value) == f"{type(guilty).__name__} {guilty.path}: {reason}"
        assert client.children(root) == ["mine", "parent", "twice"]
        assert self._node(client, f"{root}/parent").stat.version == 0
        assert self._node(client, f"{root}/twice").stat.version == 1

    def test_the_first_refused_operation_is_reported(self, client: Coordination, root: str) -> None:
        operations: list[Operation] = [
            Check(root, -1),
            Delete(f"{root}/first"),
            Delete(f"{root}/second"),
        ]
        with pytest.raises(Conflict) as conflict:
            client.transact(operations)
        assert conflict.value.operation is operations[1]

    def test_an_operation_sees_those_before_it(self, client: Coordination, root: str) -> None:
        client.transact(
            [
                Create(f"{root}/a", b""),
                Create(f"{root}/a/b", b""),
                Set(f"{root}/a", b"set", version=0),
                Check(f"{root}/a", version=1),
                Delete(f"{root}/a/b", version=0),
            ]
        )
        assert self._node(client, f"{root}/a").data == b"set"
        assert client.children(f"{root}/a") == []

    def test_a_transaction_has_one_zxid(self, client: Coordination, root: str) -> None:
        client.transact([Create(f"{root}/a", b""), Create(f"{root}/b", b"")])
        stats = [self._node(client, f"{root}/{name}").stat for name in "ab"]
        assert stats[0].czxid == stats[1].czxid

    def test_version_minus_one_is_any(self, client: Coordination, root: str) -> None:
        client.transact([Create(f"{root}/a", b""), Set(f"{root}/a", b"", version=0)])
        client.transact([Check(f"{root}/a", -1), Set(f"{root}/a", b"any", version=-1)])
        client.transact([Delete(f"{root}/a")])
        assert client.get(f"{root}/a") is None

    def test_an_empty_transaction_does_nothing(self, client: Coordination) -> None:
        client.transact([])

    def test_too_large_a_transaction_is_refused_before_it_is_sent(
        self, client: Coordination, root: str
    ) -> None:
        session = client.session()
        half = b"x" * (TRANSACTION_LIMIT_BYTES // 2)
        with pytest.raises(ValueError, match="above"):
            client.transact([Create(f"{root}/a", half), Create(f"{root}/b", half)])
        client.transact([Create(f"{root}/a", half)])
        assert client.session() == session
        assert client.state() is SessionState.CONNECTED

    # --- Sessions

    def test_an_ephemeral_node_belongs_to_the_session_that_created_it(
        self, client: Coordination, root: str
    ) -> None:
        client.transact([Create(f"{root}/mine", b"", ephemeral=True)])
        assert self._node(client, f"{root}/mine").stat.owner == client.session()

    def test_two_clients_have_two_sessions(self, ensemble: Ensemble, client: Coordination) -> None:
        other = ensemble.client()
        assert client.session() is not None
        assert other.session() not in (None, client.session())

    def test_an_ephemeral_node_is_deleted_when_its_client_closes(
        self, ensemble: Ensemble, client: Coordination, root: str
    ) -> None:
        other = ensemble.client()
        other.transact([Create(f"{root}/theirs", b"", ephemeral=True), Create(f"{root}/kept", b"")])
        assert client.get(f"{root}/theirs") is not None
        other.close()
        client.sync(root)
        assert client.children(root) == ["kept"]

    def test_a_closed_client_refuses_requests(self, ensemble: Ensemble, root: str) -> None:
        other = ensemble.client()
        received = Calls()
        other.on_session(received.states.append)
        other.close()
        other.close()
        assert other.session() is None
        assert other.state() is SessionState.LOST
        assert received.states[-1:] == [SessionState.LOST]
        for request in (other.get, other.children, other.sync, other.ensure):
            with pytest.raises(Unavailable):
                request(root)
        with pytest.raises(Unavailable):
            other.transact([Create(f"{root}/late", b"")])

    def test_an_expired_session_takes_its_ephemeral_nodes_and_is_replaced(
        self, ensemble: Ensemble, client: Coordination, root: str
    ) -> None:
        victim = ensemble.client()
        received = Calls()
        victim.on_session(received.states.append)
        before = victim.session()
        victim.transact([Create(f"{root}/mine", b"", ephemeral=True), Create(f"{root}/kept", b"")])
        ensemble.expire(victim)
        eventually(
            lambda: received.states[-1:] == [SessionState.CONNECTED], DEADLINE_S, "connected again"
        )
        assert SessionState.LOST in received.states
        assert victim.session() not in (None, before)
        client.sync(root)
        assert client.children(root) == ["kept"]
        victim.transact([Create(f"{root}/mine", b"", ephemeral=True)])
        assert self._node(client, f"{root}/mine").stat.owner == victim.session()

    def test_a_former_leader_cannot_write(
        self, ensemble: Ensemble, client: Coordination, root: str
    ) -> None:
        """It lost its session without noticing; its successor was elected; then it writes."""
        former, epoch = ensemble.client(), f"{root}/epoch"
        client.transact([Create(epoch, b""), Create(f"{root}/ideal", b"right")])
        elected = self._elect(former, root)
        ensemble.expire(former)
        self._elect(client, root)
        with pytest.raises(Conflict) as conflict:
            former.transact([Check(epoch, elected), Set(f"{root}/ideal", b"stale", version=-1)])
        assert conflict.value.operation == Check(epoch, elected)
        assert conflict.value.reason == ConflictReason.WRONG_VERSION
        assert self._node(client, f"{root}/ideal").data == b"right"

    def test_one_of_two_candidates_is_elected(
        self, ensemble: Ensemble, client: Coordination, root: str
    ) -> None:
        other = ensemble.client()
        client.transact([Create(f"{root}/epoch", b"")])
        self._elect(client, root)
        with pytest.raises(Conflict):
            other.transact(
                [Set(f"{root}/epoch", b"", 0), Create(f"{root}/leader", b"", ephemeral=True)]
            )
        assert self._node(client, f"{root}/epoch").stat.version == 1

    # --- Tree caches

    def test_a_tree_cache_loads_the_subtree_and_nothing_beside_it(
        self, client: Coordination, root: str
    ) -> None:
        for name in ("m", "m/a", "m/a/b", "m-not"):
            client.transact([Create(f"{root}/{name}", name.encode())])
        cache = client.tree_cache(f"{root}/m", lambda: None)
        until_shown(
            cache,
            {f"{root}/m": b"m", f"{root}/m/a": b"m/a", f"{root}/m/a/b": b"m/a/b"},
        )
        assert cache.nodes()[f"{root}/m/a"] == client.get(f"{root}/m/a")

    def test_a_tree_cache_follows_creates_sets_and_deletes_of_others(
        self, ensemble: Ensemble, client: Coordination, root: str
    ) -> None:
        calls, other = Calls(), ensemble.client()
        cache = client.tree_cache(root, calls.changed)
        until_shown(cache, {root: b""})
        calls.until_more_than(0, "the first load is reported")
        steps: list[tuple[Sequence[Operation], dict[str, bytes]]] = [
            ([Create(f"{root}/a", b"1")], {"": b"", "/a": b"1"}),
            ([Set(f"{root}/a", b"2", 0)], {"": b"", "/a": b"2"}),
            ([Set(f"{root}/a", b"3", 1)], {"": b"", "/a": b"3"}),
            ([Create(f"{root}/a/b", b"4")], {"": b"", "/a": b"3", "/a/b": b"4"}),
            ([Set(f"{root}/a/b", b"5", 0)], {"": b"", "/a": b"3", "/a/b": b"5"}),
            ([Delete(f"{root}/a/b")], {"": b"", "/a": b"3"}),
            ([Delete(f"{root}/a"), Create(f"{root}/a", b"6")], {"": b"", "/a": b"6"}),
            ([Create(f"{root}/a/b", b"7")], {"": b"", "/a": b"6", "/a/b": b"7"}),
            ([Delete(f"{root}/a/b"), Delete(f"{root}/a")], {"": b""}),
            ([Set(root, b"8", -1)], {"": b"8"}),
        ]
        for number, (operations, expected) in enumerate(steps):
            changes = calls.changes
            other.transact(operations)
            until_shown(cache, {f"{root}{path}": data for path, data in expected.items()})
            calls.until_more_than(changes, f"step {number} is reported")

    def test_a_tree_cache_waits_for_its_root(self, client: Coordination, root: str) -> None:
        cache = client.tree_cache(f"{root}/late", lambda: None)
        until_shown(cache, {})
        for _ in range(2):
            client.ensure(f"{root}/late/child")
            until_shown(cache, {f"{root}/late": b"", f"{root}/late/child": b""})
            client.transact([Delete(f"{root}/late/child"), Delete(f"{root}/late")])
            until_shown(cache, {})

    def test_a_tree_cache_snapshot_never_changes(self, client: Coordination, root: str) -> None:
        client.transact([Create(f"{root}/a", b"old")])
        cache = client.tree_cache(root, lambda: None)
        until_shown(cache, {root: b"", f"{root}/a": b"old"})
        kept = cache.nodes()
        client.transact([Set(f"{root}/a", b"new", 0), Create(f"{root}/b", b"")])
        until_shown(cache, {root: b"", f"{root}/a": b"new", f"{root}/b": b""})
        assert {path: node.data for path, node in kept.items()} == {root: b"", f"{root}/a": b"old"}

    def test_a_tree_cache_sees_ephemeral_nodes_deleted(
        self, ensemble: Ensemble, client: Coordination, root: str
    ) -> None:
        other = ensemble.client()
        other.transact([Create(f"{root}/live", b"", ephemeral=True)])
        cache = client.tree_cache(root, lambda: None)
        until_shown(cache, {root: b"", f"{root}/live": b""})
        assert cache.nodes()[f"{root}/live"].stat.owner == other.session()
        other.close()
        until_shown(cache, {root: b""})

    def test_a_tree_cache_outlives_its_session(
        self, ensemble: Ensemble, client: Coordination, root: str
    ) -> None:
        follower = ensemble.client()
        client.transact([Create(f"{root}/a", b"1"), Create(f"{root}/b", b"1")])
        cache = follower.tree_cache(root, lambda: None)
        until_shown(cache, {root: b"", f"{root}/a": b"1", f"{root}/b": b"1"})
        ensemble.expire(follower)
        client.transact([Delete(f"{root}/a"), Set(f"{root}/b", b"2", 0)])
        until_shown(cache, {root: b"", f"{root}/b": b"2"})
        eventually(cache.is_current, DEADLINE_S, "everything is read over the new connection")
        client.transact([Set(f"{root}/b", b"3", 1)])
        until_shown(cache, {root: b"", f"{root}/b": b"3"})

    def test_refresh_reads_now_and_notifies_only_of_changes(
        self, client: Coordination, root: str
    ) -> None:
        calls = Calls()
        cache = client.tree_cache(root, calls.changed)
        until_shown(cache, {root: b""})
        calls.until_more_than(0, "the first load is reported")
        cache.refresh()
        assert calls.changes == 1
        client.transact([Create(f"{root}/a", b"")])
        cache.refresh()
        assert set(cache.nodes()) == {root, f"{root}/a"}

    def test_a_closed_tree_cache_keeps_its_last_state(
        self, client: Coordination, root: str
    ) -> None:
        calls = Calls()
        cache = client.tree_cache(root, calls.changed)
        until_shown(cache, {root: b""})
        cache.close()
        cache.close()
        changes = calls.changes
        client.transact([Create(f"{root}/a", b"")])
        until_shown(client.tree_cache(root, lambda: None), {root: b"", f"{root}/a": b""})
        assert set(cache.nodes()) == {root}
        assert calls.changes == changes

    # --- Edits

    def test_concurrent_edits_are_all_kept(self, ensemble: Ensemble, root: str) -> None:
        clients = [ensemble.client() for _ in range(3)]
        clients[0].transact([Create(f"{root}/count", b"0")])

        def count_up(client: Coordination) -> None:
            for _ in range(5):
                edit(client, f"{root}/count", one_more, lambda _: False, timeout_s=DEADLINE_S)

        def one_more(node: Node | None) -> Edit[None]:
            assert node is not None
            more = str(int(node.data) + 1).encode()
            return Edit(None, [Set(f"{root}/count", more, version=node.stat.version)])

        threads = [threading.Thread(target=count_up, args=(client,)) for client in clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert self._node(clients[0], f"{root}/count").data == b"15"

    def test_an_edit_that_loses_its_leadership_is_not_repeated(
        self, client: Coordination, root: str
    ) -> None:
        client.transact([Create(f"{root}/a", b"")])
        read: list[Node | None] = []

        def decide(node: Node | None) -> Edit[None]:
            read.append(node)
            return Edit(None, [Check(f"{root}/epoch", 3), Set(f"{root}/a", b"x", -1)])

        with pytest.raises(Conflict, match="epoch"):
            edit(client, f"{root}/a", decide, lambda _: False, timeout_s=DEADLINE_S)
        assert len(read) == 1

    # --- Helpers

    @staticmethod
    def _node(client: Coordination, path: str) -> Node:
        client.sync(path)
        node = client.get(path)
        assert node is not None, path
        return node

    def _elect(self, client: Coordination, root: str) -> int:
        """Elect a leader as the leader's engine does; returns the epoch."""
        seen = self._node(client, f"{root}/epoch").stat.version
        leader = Create(f"{root}/leader", b"", ephemeral=True)
        client.transact([Set(f"{root}/epoch", b"", version=seen), leader])
        return seen + 1


def _below(root: str, operation: Operation) -> Operation:
    path = f"{root}/{operation.path}"
    match operation:
        case Create(data=data, ephemeral=ephemeral):
            return Create(path, data, ephemeral)
        case Set(data=data, version=version):
            return Set(path, data, version)
        case Delete(version=version):
            return Delete(path, version)
        case Check(version=version):
            return Check(path, version)
