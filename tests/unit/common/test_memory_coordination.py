"""Contract and faults of the in-memory coordination service."""

from collections.abc import Iterator, Sequence

import pytest

from ureplicator_common.coordination import (
    Conflict,
    Coordination,
    Create,
    Delete,
    Node,
    OutcomeUnknown,
    SessionState,
    Set,
    Unavailable,
    create_or_set,
    version_of,
)
from ureplicator_common.coordination.edit import Edit, edit
from ureplicator_testkit.control.coordination_contract import Calls, CoordinationContract
from ureplicator_testkit.control.manual_clock import ManualClock
from ureplicator_testkit.control.memory_coordination import MemoryCoordination, MemoryStore
from ureplicator_testkit.control.verification_contract import VerificationContract


class MemoryEnsemble:
    def __init__(self) -> None:
        self.store = MemoryStore()
        self.clients: list[MemoryCoordination] = []

    def client(self) -> MemoryCoordination:
        self.clients.append(MemoryCoordination(self.store))
        return self.clients[-1]

    def expire(self, client: Coordination) -> None:
        assert isinstance(client, MemoryCoordination)
        client.expire()
        client.restore()


@pytest.fixture
def ensemble() -> Iterator[MemoryEnsemble]:
    ensemble = MemoryEnsemble()
    yield ensemble
    for client in ensemble.clients:
        client.close()


class TestContract(CoordinationContract, VerificationContract):
    pass


@pytest.fixture
def client(ensemble: MemoryEnsemble) -> MemoryCoordination:
    client = ensemble.client()
    client.ensure("/r")
    return client


@pytest.fixture
def other(ensemble: MemoryEnsemble) -> MemoryCoordination:
    return ensemble.client()


def test_a_suspended_client_fails_at_once_and_keeps_its_session(client: MemoryCoordination) -> None:
    client.transact([Create("/r/mine", b"", ephemeral=True)])
    before, calls = client.session(), Calls()
    client.on_session(calls.states.append)
    client.suspend()
    assert client.session() is None
    with pytest.raises(Unavailable):
        client.get("/r")
    with pytest.raises(Unavailable):
        client.transact([Create("/r/a", b"")])
    client.restore()
    assert client.session() == before
    assert calls.states == [SessionState.SUSPENDED, SessionState.CONNECTED]
    assert client.children("/r") == ["mine"]


def test_a_session_that_expires_while_suspended_is_learnt_of_at_the_reconnect(
    client: MemoryCoordination, other: MemoryCoordination
) -> None:
    client.transact([Create("/r/mine", b"", ephemeral=True)])
    calls = Calls()
    client.on_session(calls.states.append)
    client.suspend()
    before = client.expire()
    assert client.state() is SessionState.SUSPENDED
    assert other.children("/r") == []
    client.restore()
    with_a_new_session = [SessionState.SUSPENDED, SessionState.LOST, SessionState.CONNECTED]
    assert calls.states == with_a_new_session
    assert client.session() not in (None, before)


def test_an_expired_client_has_no_session_until_it_is_restored(client: MemoryCoordination) -> None:
    client.expire()
    assert client.state() is SessionState.LOST
    assert client.session() is None
    with pytest.raises(Unavailable):
        client.get("/r")


def test_the_next_requests_fail_and_do_nothing(client: MemoryCoordination) -> None:
    client.fail_next(2)
    with pytest.raises(Unavailable):
        client.transact([Create("/r/a", b"")])
    with pytest.raises(Unavailable):
        client.get("/r")
    assert client.children("/r") == []


@pytest.mark.parametrize("applied", [True, False])
def test_a_lost_response_hides_what_happened(client: MemoryCoordination, applied: bool) -> None:
    client.lose_next_response(applied=applied)
    with pytest.raises(OutcomeUnknown):
        client.transact([Create("/r/a", b"")])
    assert (client.get("/r/a") is not None) == applied
    client.transact([Create("/r/b", b"")])


def test_a_refused_write_with_a_lost_response_is_unknown_too(client: MemoryCoordination) -> None:
    client.lose_next_response(applied=True)
    with pytest.raises(OutcomeUnknown):
        client.transact([Create("/r/a", b""), Delete("/r/none")])
    assert client.children("/r") == []


def test_nothing_below_a_leaf_is_seen(
    client: MemoryCoordination, other: MemoryCoordination
) -> None:
    """A cache of the real tree does not ask leaves for their children."""
    other.transact([Create("/r/a", b""), Create("/r/a/before", b"")])
    cache = client.tree_cache("/r", lambda: None, is_leaf=lambda path: path == "/r/a")
    other.transact([Create("/r/a/after", b""), Create("/r/b", b"")])
    assert set(cache.nodes()) == {"/r", "/r/a", "/r/b"}


def test_held_watches_fire_once_when_released(
    client: MemoryCoordination, other: MemoryCoordination
) -> None:
    calls = Calls()
    cache = client.tree_cache("/r", calls.changed)
    client.hold_watches()
    other.transact([Create("/r/a", b"")])
    other.transact([Create("/r/b", b"")])
    assert set(cache.nodes()) == {"/r"}
    client.release_watches()
    assert set(cache.nodes()) == {"/r", "/r/a", "/r/b"}
    assert calls.changes == 2


def test_dropped_watches_blind_the_tree_cache_until_it_is_refreshed(
    client: MemoryCoordination, other: MemoryCoordination
) -> None:
    cache = client.tree_cache("/r", lambda: None)
    client.hold_watches()
    other.transact([Create("/r/a", b"")])
    client.drop_watches()
    other.transact([Create("/r/b", b"")])
    assert set(cache.nodes()) == {"/r", "/r/b"}
    cache.refresh()
    assert set(cache.nodes()) == {"/r", "/r/a", "/r/b"}


def test_a_suspended_tree_cache_shows_what_it_received_last_and_catches_up(
    client: MemoryCoordination, other: MemoryCoordination
) -> None:
    cache = client.tree_cache("/r", lambda: None)
    client.suspend()
    other.transact([Create("/r/a", b"")])
    assert set(cache.nodes()) == {"/r"}
    with pytest.raises(Unavailable):
        cache.refresh()
    client.restore()
    assert set(cache.nodes()) == {"/r", "/r/a"}


def test_a_tree_cache_made_while_suspended_has_nothing_to_show_yet(
    client: MemoryCoordination,
) -> None:
    client.suspend()
    cache = client.tree_cache("/r", lambda: None)
    with pytest.raises(Unavailable):
        cache.nodes()
    client.restore()
    assert set(cache.nodes()) == {"/r"}


def test_a_callback_may_use_the_client(client: MemoryCoordination) -> None:
    seen: list[Sequence[str]] = []
    client.tree_cache("/r", lambda: seen.append(client.children("/r")))
    client.transact([Create("/r/a", b"")])
    assert seen == [[], ["a"]]


class Edits:
    """One edit of `/r/a`, its request id as content, on a clock that only `wait` moves."""

    def __init__(self, client: MemoryCoordination) -> None:
        self._client = client
        self._clock = ManualClock()
        self.decided_on: list[bytes | None] = []
        self.waits = 0

    def run(self, request_id: bytes = b"id") -> bytes:
        self._request_id = request_id
        return edit(
            self._client,
            "/r/a",
            self._decide,
            lambda node: node is not None and node.data == request_id,
            timeout_s=5,
            clock=self._clock,
            wait=self._wait,
        )

    def _decide(self, node: Node | None) -> Edit[bytes]:
        self.decided_on.append(None if node is None else node.data)
        return Edit(self._request_id, [create_or_set("/r/a", self._request_id, version_of(node))])

    def _wait(self, seconds: float) -> None:
        self.waits += 1
        self._clock.advance(seconds)


def test_an_edit_with_a_lost_response_that_was_applied_is_made_once(
    client: MemoryCoordination,
) -> None:
    edits = Edits(client)
    client.lose_next_response(applied=True)
    assert edits.run() == b"id"
    node = client.get("/r/a")
    assert node is not None
    assert (node.data, node.stat.version) == (b"id", 0)
    assert edits.decided_on == [None]


def test_an_edit_with_a_lost_response_that_was_not_applied_is_made_again(
    client: MemoryCoordination,
) -> None:
    edits = Edits(client)
    client.lose_next_response(applied=False)
    assert edits.run() == b"id"
    assert client.get("/r/a") is not None
    assert edits.decided_on == [None, None]


def test_an_edit_is_read_back_although_reads_fail_for_a_while(client: MemoryCoordination) -> None:
    edits = Edits(client)
    client.lose_next_response(applied=True)
    real_wait = edits._wait

    def wait_and_fail(seconds: float) -> None:
        real_wait(seconds)
        if edits.waits < 5:
            client.fail_next(1)

    edits._wait = wait_and_fail  # type: ignore[method-assign]
    edits.run()
    assert edits.decided_on == [None]
    assert edits.waits == 5


def test_an_edit_that_cannot_be_read_back_reports_that_it_is_unknown(
    client: MemoryCoordination,
) -> None:
    edits = Edits(client)
    client.lose_next_response(applied=True)
    real_wait = edits._wait

    def wait_and_fail(seconds: float) -> None:
        real_wait(seconds)
        client.fail_next(1)

    edits._wait = wait_and_fail  # type: ignore[method-assign]
    with pytest.raises(OutcomeUnknown):
        edits.run()
    assert edits.waits >= 49


def test_an_edit_while_nothing_responds_fails_at_once(client: MemoryCoordination) -> None:
    edits = Edits(client)
    client.suspend()
    with pytest.raises(Unavailable):
        edits.run()
    assert edits.waits == 0


def test_a_contended_edit_is_decided_again_each_time(
    client: MemoryCoordination, other: MemoryCoordination
) -> None:
    edits = Edits(client)
    other.transact([Create("/r/a", b"theirs")])
    real_decide = edits._decide

    def decide_too_late(node: Node | None) -> Edit[bytes]:
        decided = real_decide(node)
        if len(edits.decided_on) < 3:
            other.transact([Set("/r/a", b"theirs again", version=-1)])
        return decided

    edits._decide = decide_too_late  # type: ignore[method-assign]
    edits.run()
    assert edits.decided_on == [b"theirs", b"theirs again", b"theirs again"]


def test_a_contention_that_does_not_end_is_a_conflict(
    client: MemoryCoordination, other: MemoryCoordination
) -> None:
    edits = Edits(client)
    other.transact([Create("/r/a", b"theirs")])
    real_decide = edits._decide

    def decide_too_late(node: Node | None) -> Edit[bytes]:
        decided = real_decide(node)
        other.transact([Set("/r/a", b"theirs again", version=-1)])
        return decided

    edits._decide = decide_too_late  # type: ignore[method-assign]
    with pytest.raises(Conflict, match="another version"):
        edits.run()
