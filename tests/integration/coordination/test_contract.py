"""Real ZooKeeper keeps the contract too, and what only a real server can do to us."""

import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from kazoo.client import KazooClient

from ureplicator_common.coordination import (
    Check,
    Coordination,
    Create,
    Delete,
    OutcomeUnknown,
    SessionState,
    Set,
    Unavailable,
)
from ureplicator_common.coordination.connection import CLOSE_GRACE_S
from ureplicator_common.coordination.zookeeper import (
    PIPELINE,
    ZooKeeperCoordination,
    _Reader,
)
from ureplicator_common.errors import ConfigurationError
from ureplicator_testkit.control.coordination_contract import (
    DEADLINE_S,
    Calls,
    CoordinationContract,
    shows,
    until_shown,
)
from ureplicator_testkit.control.verification_contract import VerificationContract
from ureplicator_testkit.servers.ports import claim_port
from ureplicator_testkit.servers.processes import Process, deadline_factor, eventually
from ureplicator_testkit.servers.zookeeper import ZooKeeperServer

pytestmark = pytest.mark.integration

SESSION_TIMEOUT_S = 3.0
AT_ONCE_S = 0.5
LOADED_S = 2.0
"""0.35 s on two idle cores, five times as much on busy ones."""
NOTICED_S = SESSION_TIMEOUT_S * 2


class ZooKeeperEnsemble:
    def __init__(self, hosts: str) -> None:
        self.hosts = hosts
        self.clients: list[ZooKeeperCoordination] = []

    def client(self, **options: Any) -> ZooKeeperCoordination:
        client = self.unconnected(**options)
        client.connect(DEADLINE_S)
        return client

    def unconnected(self, **options: Any) -> ZooKeeperCoordination:
        options.setdefault("session_timeout_s", SESSION_TIMEOUT_S)
        client = ZooKeeperCoordination(hosts=self.hosts, **options)
        self.clients.append(client)
        return client

    def expire(self, client: Coordination) -> None:
        """Expire a session on demand: a second connection takes it over and ends it."""
        assert isinstance(client, ZooKeeperCoordination)
        before = cast(tuple[int, bytes], client._client.client_id)
        twin = KazooClient(self.hosts, client_id=before, timeout=SESSION_TIMEOUT_S)
        twin.start(DEADLINE_S)
        twin.stop()
        twin.close()
        eventually(lambda: client.session() not in (None, before[0]), DEADLINE_S, "a new session")


@pytest.fixture
def ensemble(zookeeper: ZooKeeperServer) -> Iterator[ZooKeeperEnsemble]:
    yield from _ensemble(zookeeper)


@pytest.fixture(scope="module")
def own_server() -> Iterator[ZooKeeperServer]:
    """One that may be frozen and killed."""
    with ZooKeeperServer() as server:
        yield server


@pytest.fixture
def own_ensemble(own_server: ZooKeeperServer) -> Iterator[ZooKeeperEnsemble]:
    yield from _ensemble(own_server)


def _ensemble(server: ZooKeeperServer) -> Iterator[ZooKeeperEnsemble]:
    before = set(threading.enumerate())
    ensemble = ZooKeeperEnsemble(server.hosts)
    yield ensemble
    for client in ensemble.clients:
        client.close()
    assert set(threading.enumerate()) <= before, "a thread outlives close()"


class TestContract(CoordinationContract, VerificationContract):
    pass


def test_the_server_knows_our_session_by_the_same_id(ensemble: ZooKeeperEnsemble) -> None:
    client = ensemble.client()
    watcher = KazooClient(ensemble.hosts)
    watcher.start(DEADLINE_S)
    try:
        client.ensure("/own")
        client.transact([Create("/own/mine", b"", ephemeral=True)])
        stat = watcher.exists_async("/own/mine").get(timeout=DEADLINE_S)
        assert stat is not None
        assert stat.ephemeralOwner == client.session()
    finally:
        watcher.stop()
        watcher.close()


def test_a_tree_cache_of_a_thousand_nodes_loads_quickly_and_follows(
    ensemble: ZooKeeperEnsemble,
) -> None:
    client = ensemble.client()
    for number in range(10):
        client.ensure(f"/big/{number}")
        client.transact([Create(f"/big/{number}/{child}", b"x" * 200) for child in range(100)])
    began = time.monotonic()
    cache = client.tree_cache("/big", lambda: None)
    eventually(lambda: shows(cache, lambda found: len(found) == 1011), DEADLINE_S, "it loads")
    assert time.monotonic() - began < LOADED_S * deadline_factor()
    ensemble.expire(client)
    client.transact([Set("/big/3/33", b"new", version=0), Delete("/big/4/44")])
    eventually(
        lambda: shows(cache, lambda found: found.get("/big/3/33") == b"new" and len(found) == 1010),
        DEADLINE_S,
        "it is read again",
    )


def test_leaves_are_followed_without_their_children(ensemble: ZooKeeperEnsemble) -> None:
    client = ensemble.client()
    client.ensure("/leaves/route")
    client.transact([Create("/leaves/route/a", b"1"), Create("/leaves/route/b", b"1")])
    cache = client.tree_cache("/leaves", lambda: None, is_leaf=lambda path: path.count("/") == 3)
    leaves = {"/leaves/route/a", "/leaves/route/b"}
    eventually(lambda: shows(cache, lambda found: leaves <= set(found)), DEADLINE_S, "it loads")
    client.transact([Set("/leaves/route/a", b"2", version=0), Delete("/leaves/route/b")])
    client.transact([Create("/leaves/route/b", b"3"), Create("/leaves/route/c", b"3")])
    wanted = {"/leaves": b"", "/leaves/route": b"", "/leaves/route/a": b"2"}
    wanted |= dict.fromkeys(("/leaves/route/b", "/leaves/route/c"), b"3")
    until_shown(cache, wanted)


def test_a_tree_cache_requests_many_nodes_before_the_first_response(
    own_server: ZooKeeperServer, own_ensemble: ZooKeeperEnsemble
) -> None:
    """The session outlives the pause: else a slow machine drops the connection first."""
    client = own_ensemble.client(session_timeout_s=DEADLINE_S)
    client.ensure("/many")
    names = [f"/many/{number}" for number in range(PIPELINE)]
    client.transact([Create(name, b"") for name in names])
    kazoo: Any = client._client
    reader = _Reader(client=kazoo, turn=threading.Lock(), request_timeout_s=DEADLINE_S)
    reading = threading.Thread(target=reader.read, args=(names, []))
    own_server.pause()
    try:
        reading.start()
        eventually(lambda: len(kazoo._pending) == PIPELINE, DEADLINE_S, "all are requested")
    finally:
        own_server.resume()
    reading.join()


def test_a_burst_of_changes_leads_to_few_calls(ensemble: ZooKeeperEnsemble) -> None:
    client, other, calls = ensemble.client(), ensemble.client(), Calls()
    client.ensure("/burst")
    cache = client.tree_cache("/burst", calls.changed)
    until_shown(cache, {"/burst": b""})
    other.transact([Create(f"/burst/{number}", b"") for number in range(500)])
    eventually(lambda: shows(cache, lambda found: len(found) == 501), DEADLINE_S, "all are shown")
    assert calls.changes < 20


def test_no_server_is_one_clear_line() -> None:
    claim = claim_port()
    hosts = f"127.0.0.1:{claim.port}"
    client = ZooKeeperCoordination(hosts=hosts, session_timeout_s=SESSION_TIMEOUT_S)
    with pytest.raises(Unavailable) as error:
        client.connect(0.5)
    assert str(error.value) == (
        f"no session with ZooKeeper at {hosts} within 0.5 s: [Errno 111] Connection refused"
    )
    assert client.session() is None
    assert client.state() is SessionState.LOST
    client.close()
    claim.release()
    with pytest.raises(Unavailable, match="closed"):
        client.connect(1)


@pytest.mark.parametrize("hosts", ["", "a:b", "a,,b"])
def test_hosts_that_make_no_sense_are_a_wrong_configuration(hosts: str) -> None:
    with pytest.raises(ConfigurationError, match=r"zookeeper\.hosts"):
        ZooKeeperCoordination(hosts=hosts, session_timeout_s=4)


def test_a_killed_server_fails_requests_at_once_and_is_found_again(
    own_server: ZooKeeperServer, own_ensemble: ZooKeeperEnsemble
) -> None:
    client, calls = own_ensemble.client(), Calls()
    client.on_session(calls.states.append)
    client.ensure("/killed/a")
    cache = client.tree_cache("/killed", lambda: None)
    until_shown(cache, {"/killed": b"", "/killed/a": b""})
    own_server.kill()
    eventually(lambda: client.state() is SessionState.SUSPENDED, NOTICED_S, "suspended")
    assert client.session() is None
    for request in (client.get, client.children, client.sync, client.ensure, _create(client)):
        _raises_at_once(Unavailable, request, "/killed/queued")
    _raises_at_once(Unavailable, lambda _: cache.refresh(), "")
    eventually(lambda: not cache.is_current(), NOTICED_S, "the cache is that of before the outage")
    assert set(cache.nodes()) == {"/killed", "/killed/a"}
    own_server.start()
    eventually(lambda: client.state() is SessionState.CONNECTED, NOTICED_S, "connected again")
    assert client.get("/killed/queued") is None
    own_ensemble.client().transact([Set("/killed/a", b"new", 0), Create("/killed/b", b"")])
    until_shown(cache, {"/killed": b"", "/killed/a": b"new", "/killed/b": b""})
    eventually(cache.is_current, NOTICED_S, "read over the new connection")
    assert calls.states[0] is SessionState.SUSPENDED
    assert calls.states[-1] is SessionState.CONNECTED


def test_a_write_under_way_when_the_connection_is_lost_is_unknown(
    own_server: ZooKeeperServer, own_ensemble: ZooKeeperEnsemble
) -> None:
    client = own_ensemble.client()
    client.ensure("/lost")
    own_server.pause()
    killer = threading.Timer(0.3, own_server.kill)
    killer.start()
    try:
        with pytest.raises(OutcomeUnknown, match="Create /lost/a"):
            client.transact([Create("/lost/a", b"")])
    finally:
        killer.join()
        own_server.start()
    eventually(lambda: client.session() is not None, NOTICED_S, "connected again")
    client.sync("/lost")
    assert client.children("/lost") == []


def test_a_suspended_server_blocks_no_request_and_may_apply_it_later(
    own_server: ZooKeeperServer, own_ensemble: ZooKeeperEnsemble
) -> None:
    """Late is unknown: the write that was given up is done when the server thaws."""
    client, watcher = own_ensemble.client(request_timeout_s=0.3), own_ensemble.client()
    client.ensure("/frozen")
    own_server.pause()
    try:
        with pytest.raises(OutcomeUnknown, match="no response in time"):
            client.transact([Create("/frozen/late", b"")])
        with pytest.raises(Unavailable, match="no response in time"):
            client.get("/frozen")
    finally:
        own_server.resume()
    eventually(
        lambda: watcher.session() and watcher.get("/frozen/late"), NOTICED_S, "it was done late"
    )


def test_a_frozen_server_is_noticed_before_the_session_ends(
    own_server: ZooKeeperServer, own_ensemble: ZooKeeperEnsemble
) -> None:
    client = own_ensemble.client()
    own_server.pause()
    try:
        began = time.monotonic()
        eventually(lambda: client.state() is SessionState.SUSPENDED, NOTICED_S, "suspended")
        assert time.monotonic() - began < SESSION_TIMEOUT_S * deadline_factor()
        time.sleep(SESSION_TIMEOUT_S)
        assert client.state() is SessionState.SUSPENDED, "only a server can say that it is lost"
        _raises_at_once(Unavailable, client.get, "/")
    finally:
        own_server.resume()
    eventually(lambda: client.session() is not None, NOTICED_S, "connected again")


def test_close_is_quick_although_the_server_is_frozen(
    own_server: ZooKeeperServer, own_ensemble: ZooKeeperEnsemble
) -> None:
    client = own_ensemble.client(session_timeout_s=30)
    client.tree_cache("/", lambda: None)
    own_server.pause()
    try:
        _closes_within(client, CLOSE_GRACE_S + 1)
    finally:
        own_server.resume()


def test_close_is_quick_while_a_server_does_not_respond() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hosts = f"127.0.0.1:{silent.getsockname()[1]}"
        client = ZooKeeperCoordination(hosts=hosts, session_timeout_s=30)
        with pytest.raises(Unavailable, match="connected, but no response"):
            client.connect(0.5)
        _closes_within(client, 1)


def test_a_server_that_does_not_respond_does_not_use_up_the_session(
    ensemble: ZooKeeperEnsemble,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        hosts = ",".join([f"127.0.0.1:{port}"] * 3 + [ensemble.hosts])
        client = ZooKeeperCoordination(hosts=hosts, session_timeout_s=16)
        began = time.monotonic()
        client.connect(16)
        assert time.monotonic() - began < 8 * deadline_factor()
        client.close()


def test_a_listener_that_is_slow_or_wrong_blocks_no_request(ensemble: ZooKeeperEnsemble) -> None:
    client, calls = ensemble.client(), Calls()
    free = threading.Event()

    def slow(_state: SessionState) -> None:
        free.wait(DEADLINE_S)

    def wrong(_state: SessionState) -> None:
        raise RuntimeError("a listener of a test fails on purpose")

    for listener in (slow, wrong, calls.states.append):
        client.on_session(listener)
    ensemble.expire(client)
    client.ensure("/listeners")
    assert client.get("/listeners") is not None
    free.set()
    eventually(
        lambda: calls.states[-1:] == [SessionState.CONNECTED], DEADLINE_S, "notified at last"
    )


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_dead_connection_thread_is_replaced(
    ensemble: ZooKeeperEnsemble, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kazoo ends it at any unexpected error."""
    client = ensemble.client()
    client.ensure("/revived")
    cache = client.tree_cache("/revived", lambda: None)
    until_shown(cache, {"/revived": b""})
    before = client.session()
    connection: Any = client._client._connection  # type: ignore[attr-defined]
    with monkeypatch.context() as patch:
        patch.setattr(connection, "_read_socket", lambda _timeout: 1 // 0)
        with pytest.raises((Unavailable, OutcomeUnknown)):
            client.transact([Create("/revived/a", b"")])
        eventually(lambda: client.session() is None, DEADLINE_S, "it died")
    eventually(lambda: client.session() not in (None, before), DEADLINE_S, "another took over")
    client.transact([Create("/revived/b", b"")])
    eventually(lambda: "/revived/b" in cache.nodes(), DEADLINE_S, "tree caches go on")


def test_a_thawed_leader_writes_nothing(ensemble: ZooKeeperEnsemble, tmp_path: Path) -> None:
    """Frozen for longer than its session; another leads; then it goes on as if nothing were."""
    client = ensemble.client()
    for path in ("/thaw/epoch", "/thaw/ideal"):
        client.ensure(path)
    argv = [sys.executable, "-c", FORMER_LEADER, ensemble.hosts, str(SESSION_TIMEOUT_S)]
    leader = Process("former leader", argv, log=tmp_path / "leader.log")
    try:
        leader.wait_for_line("written", DEADLINE_S)
        leader.pause()
        eventually(lambda: client.get("/thaw/leader") is None, NOTICED_S, "its session ends")
        leads = Create("/thaw/leader", b"", ephemeral=True)
        client.transact([Set("/thaw/epoch", b"", 1), leads])
        client.transact([Check("/thaw/epoch", 2), Set("/thaw/ideal", b"ours", version=-1)])
        leader.resume()
        leader.wait_for_line("(Conflict.*\n){3}", DEADLINE_S)
        node = client.get("/thaw/ideal")
        assert node is not None
        assert node.data == b"ours"
    finally:
        leader.kill_tree()


FORMER_LEADER = """
import sys, time
from ureplicator_common.coordination import Check, Create, Set
from ureplicator_common.coordination.zookeeper import ZooKeeperCoordination
from ureplicator_common.errors import OperatingError
client = ZooKeeperCoordination(hosts=sys.argv[1], session_timeout_s=float(sys.argv[2]))
client.connect(10)
client.transact([Set("/thaw/epoch", b"", 0), Create("/thaw/leader", b"", ephemeral=True)])
while True:
    try:
        client.transact([Check("/thaw/epoch", 1), Set("/thaw/ideal", b"stale", -1)])
        print("written", flush=True)
    except OperatingError as error:
        print(type(error).__name__, error, flush=True)
    time.sleep(0.02)
"""


def _closes_within(client: ZooKeeperCoordination, bound_s: float) -> None:
    began = time.monotonic()
    client.close()
    assert time.monotonic() - began < bound_s * deadline_factor()


def _create(client: Coordination) -> Callable[[str], None]:
    return lambda path: client.transact([Create(path, b"")])


def _raises_at_once(
    error: type[Exception], request: Callable[[str], object], argument: str
) -> None:
    began = time.monotonic()
    with pytest.raises(error):
        request(argument)
    assert time.monotonic() - began < AT_ONCE_S * deadline_factor()
