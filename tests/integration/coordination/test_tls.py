"""ZooKeeper over TLS, with a real server: what connects, what is refused and why, and how it recovers."""

from __future__ import annotations

import select
import socket
import ssl
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from threading import Event

import pytest
import requests

from ureplicator_common.config.clusters import ZookeeperTlsSettings
from ureplicator_common.coordination import Create, Set, Unavailable
from ureplicator_common.coordination.buffered_sockets import TlsSocket
from ureplicator_common.coordination.tls import new_context
from ureplicator_common.coordination.zookeeper import ZooKeeperCoordination
from ureplicator_common.znodes.fleet import decode_controller
from ureplicator_testkit.control.command import run
from ureplicator_testkit.secured.certificates import Authority, Certificate
from ureplicator_testkit.servers.processes import eventually, spawn_ureplicator, wait_for_http
from ureplicator_testkit.servers.zookeeper import ServerTls, ZooKeeperServer

pytestmark = pytest.mark.integration

USER = "fleet:pw-0123456789"
CONNECT_S = 30.0
REFUSED_S = 2.0
SESSION_S = 10.0


@dataclass
class Stage:
    """A server that wants certificates of clients, and what clients may present."""

    authority: Authority
    server: ZooKeeperServer
    own: Certificate
    client: Certificate

    def settings(self, **changes: str) -> ZookeeperTlsSettings:
        return ZookeeperTlsSettings(
            **{
                "ca_file": str(self.authority.certificate),
                "certificate_file": str(self.client.certificate),
                "key_file": str(self.client.key),
                **changes,
            }
        )

    def present(self, certificate: Certificate) -> None:
        """The server has this certificate from here on."""
        self.own.both.write_bytes(certificate.both.read_bytes())
        self.server.restart()


NewClient = Callable[..., ZooKeeperCoordination]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    authority = Authority(tmp_path_factory.mktemp("tls"))
    own, client = authority.issue("server"), authority.issue("client")
    tls = ServerTls(own.both, authority.certificate, client_auth="need")
    with ZooKeeperServer(tls=tls) as server:
        yield Stage(authority, server, own, client)


@pytest.fixture
def other(tmp_path: Path) -> Authority:
    """An authority that nobody trusts."""
    return Authority(tmp_path / "other", "other")


@pytest.fixture
def new(stage: Stage) -> Iterator[NewClient]:
    with ExitStack() as made:

        def client(
            hosts: str = "", tls: ZookeeperTlsSettings | None = None, digest: str = ""
        ) -> ZooKeeperCoordination:
            return made.enter_context(
                closing(
                    ZooKeeperCoordination(
                        hosts=hosts or stage.server.tls_hosts,
                        session_timeout_s=SESSION_S,
                        tls=tls or stage.settings(),
                        digest=digest,
                    )
                )
            )

        yield client


def refusal(client: ZooKeeperCoordination) -> str:
    with pytest.raises(Unavailable) as caught:
        client.connect(REFUSED_S)
    return str(caught.value)


def wait_refused(client: ZooKeeperCoordination, text: str) -> None:
    """Wait for a refusal with the text. A try may end after the first report of it where the machine is
    busy."""
    eventually(lambda: text in refusal(client), CONNECT_S, f"it says {text!r}")


def test_requests_watches_and_large_answers(stage: Stage, new: NewClient) -> None:
    one, two = new(digest=USER), new(digest=USER)
    for client in (one, two):
        client.connect(CONNECT_S)
    one.ensure("/tls/many")
    paths = [f"/tls/many/{number:03}" for number in range(300)]
    one.transact([Create(path, b"x" * 2_000) for path in paths])
    changed = Event()
    cache = two.tree_cache("/tls", changed.set)
    cache.refresh()
    assert {path for path in cache.nodes() if path in paths} == set(paths)
    changed.clear()
    one.transact([Set(paths[7], b"y", -1)])
    assert changed.wait(SESSION_S / 2), "noticed before a heartbeat would have shown it"
    assert not one.is_open("/tls/many")
    stranger = stage.authority.issue("stranger")
    files = {"certificate_file": str(stranger.certificate), "key_file": str(stranger.key)}
    nobody = new(tls=stage.settings(**files))
    nobody.connect(CONNECT_S)
    with pytest.raises(Unavailable, match="belongs to another user"):
        nobody.get("/tls/many")


def test_a_wrong_authority_is_refused_and_it_recovers(
    stage: Stage, new: NewClient, other: Authority, tmp_path: Path
) -> None:
    file = tmp_path / "ca.pem"
    file.write_bytes(other.certificate.read_bytes())
    client = new(tls=stage.settings(ca_file=str(file)))
    server = f"127.0.0.1:{stage.server.tls_port}"
    wait_refused(client, f"{server}: TLS: the certificate of the server is refused")
    assert refusal(client).endswith("see zookeeper.tls.ca_file")
    file.write_bytes(stage.authority.certificate.read_bytes())
    client.connect(CONNECT_S)


def test_certificates_of_the_server_that_are_refused_and_rotated(
    stage: Stage, new: NewClient
) -> None:
    client = new()
    client.connect(CONNECT_S)
    before = client.session()
    authority = stage.authority
    stage.present(authority.issue("elsewhere", hosts="DNS:zk.example.com"))
    wait_refused(new(), "zookeeper.hosts must have an address of the certificate")
    named = new(f"localhost:{stage.server.tls_port}")
    wait_refused(named, "zookeeper.hosts must have a name of the certificate")
    with pytest.raises(Unavailable, match=r"not connected: .*mismatch"):
        client.get("/")
    stage.present(authority.issue("expired", expired=True))
    wait_refused(new(), "certificate has expired: renew it on the server")
    stage.present(authority.issue("renewed"))
    client.connect(CONNECT_S)
    eventually(lambda: client.state().value == "connected", CONNECT_S, "it is back")
    assert before is not None


def test_the_certificate_of_the_client_is_demanded_and_replaced(
    stage: Stage, new: NewClient, other: Authority
) -> None:
    without = stage.settings(certificate_file="", key_file="")
    hint = "see zookeeper.tls.certificate_file"
    wait_refused(new(tls=without), hint)
    foreign = other.issue("foreign")
    named = stage.settings(certificate_file=str(foreign.certificate), key_file=str(foreign.key))
    client = new(tls=named)
    wait_refused(client, hint)
    foreign.replace(stage.authority.issue("replacement"))
    client.connect(CONNECT_S)


def test_a_key_with_a_password(stage: Stage, new: NewClient, tmp_path: Path) -> None:
    key, password = stage.client.encrypted("pw-key", tmp_path / "key.pem"), tmp_path / "password"
    password.write_text("pw-key\n")
    named = stage.settings(key_file=str(key), key_password_file=str(password))
    new(tls=named).connect(CONNECT_S)


def test_ports_without_tls_and_without_answer(stage: Stage, new: NewClient) -> None:
    hint = "is it the server's TLS port (secureClientPort)?"
    wait_refused(new(stage.server.hosts), hint)
    plain = new(stage.server.tls_hosts, tls=ZookeeperTlsSettings())
    wait_refused(plain, "connected, but no response")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        client = new(address)
        wait_refused(client, "no response to the handshake in time")
        client.close()
        both = new(f"{address},{stage.server.tls_hosts}")
        both.connect(CONNECT_S)


def test_a_record_with_several_answers_and_one_with_none(stage: Stage) -> None:
    """`select` sees neither what is decrypted already, nor that a record holds no data."""
    ours, theirs = socket.socketpair()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(stage.own.certificate, stage.own.key)
    with ThreadPoolExecutor(1) as pool, ExitStack() as opened:
        served = pool.submit(context.wrap_socket, theirs, server_side=True)
        client = opened.enter_context(
            new_context(stage.settings()).wrap_socket(ours, server_hostname="127.0.0.1")
        )
        server = opened.enter_context(served.result())
        client.setblocking(False)
        assert isinstance(client, TlsSocket)
        assert select.select([client], [], [], 5)[0], "session tickets"
        client.fill()
        assert not client.has_data
        with pytest.raises(ssl.SSLWantReadError):
            client.recv(4)
        server.sendall(b"one-two-")
        assert select.select([client], [], [], 5)[0]
        assert client.recv(4) == b"one-"
        assert not select.select([client], [], [], 0)[0]
        assert client.has_data
        assert client.recv(9) == b"two-"


def fleet_file(stage: Stage, folder: Path, **changes: str) -> Path:
    """A configuration with TLS and digest; `changes`: of the settings of TLS."""
    (folder / "user").write_text(USER + "\n")
    tls = {name: file for name, file in stage.settings(**changes).model_dump().items() if file}
    config = folder / "fleet.yaml"
    config.write_text(
        f"fleet: tls\nzookeeper: {{hosts: '{stage.server.tls_hosts}', tls: {tls},"
        f" digest_file: {folder / 'user'}}}\n"
        "clusters: {a: {bootstrap.servers: '127.0.0.1:1'}, b: {bootstrap.servers: 'localhost:1'}}\n"
        "routes: [{source: a, target: b}]\n"
        "controller: {port: 0, rebalance_delay_s: 0, join_delay_s: 0}\n"
    )
    return config


def test_a_controller_says_what_is_wrong_and_goes_on(
    stage: Stage, new: NewClient, other: Authority, tmp_path: Path
) -> None:
    ca = tmp_path / "ca.pem"
    ca.write_bytes(other.certificate.read_bytes())
    config = fleet_file(stage, tmp_path, ca_file=str(ca))
    log, wrong = tmp_path / "c1.log", "the certificate of the server is refused"
    hand = new(digest=USER)
    hand.connect(CONNECT_S)
    controller = spawn_ureplicator("controller", config, "--id", "c1", log=log, name="c1")
    try:
        eventually(lambda: wrong in log.read_text(), CONNECT_S, "it says so at its start")
        ca.write_bytes(stage.authority.certificate.read_bytes())
        eventually(lambda: hand.get("/ureplicator/tls/leader"), CONNECT_S, "it leads")
        live = hand.get("/ureplicator/tls/leader")
        assert live is not None
        url = "http://{0.host}:{0.port}/topics".format(decode_controller(live.data))
        wait_for_http(url, CONNECT_S, process=controller)
        stage.present(stage.authority.issue("late", expired=True))
        expired = "certificate has expired: renew it on the server"
        eventually(lambda: expired in requests.get(url, timeout=9).text, CONNECT_S, "REST says so")
        assert "expired" not in requests.get(url.replace("topics", "ready"), timeout=9).text
        stage.present(stage.authority.issue("in-time"))
        wait_for_http(url, CONNECT_S, process=controller)
    finally:
        controller.kill_tree()


def test_the_command_uses_it(stage: Stage, tmp_path: Path) -> None:
    config = fleet_file(stage, tmp_path)
    result = run("zookeeper", "secure", config)
    assert result.exit_code == 0, result.stderr
    assert "nodes belong" in result.stdout
