"""TLS of REST, against the server as it is started."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import requests

from ureplicator_controller.api.rest_process import CONNECTIONS
from ureplicator_controller.api.serving.streams import EVENT_STREAM
from ureplicator_controller.api.serving.worker import REQUEST_S
from ureplicator_testkit.fleet.rest_server import NOWHERE, Rest
from ureplicator_testkit.secured.certificates import Authority, Certificate
from ureplicator_testkit.servers.processes import eventually

pytestmark = pytest.mark.integration

GET = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
LAST = GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
TOKEN = "operator-of-this-test-0123456789"  # noqa: S105  # of this test


@dataclass
class Secured:
    rest: Rest
    authority: Authority
    certificate: Certificate
    folder: Path

    @property
    def log(self) -> str:
        return (self.folder / "rest.log").read_text()

    def connect(self, context: ssl.SSLContext | None = None) -> ssl.SSLSocket:
        raw = socket.create_connection(("127.0.0.1", self.rest.port), timeout=4 * REQUEST_S)
        return (context or self.trusting()).wrap_socket(raw, server_hostname="localhost")

    def trusting(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.authority.certificate))

    def served(self) -> bytes:
        """The certificate that a new connection is shown."""
        with self.connect() as client:
            return client.getpeercert(binary_form=True) or b""


@contextmanager
def started(folder: Path, *, client_ca: bool = False) -> Iterator[Secured]:
    authority = Authority(folder / "authority")
    used = authority.issue("rest")
    (folder / "tokens").write_text(f"alice {TOKEN}\n")
    more = f", client_ca_file: {authority.certificate}" if client_ca else ""
    rest = Rest(
        NOWHERE,
        folder,
        ca=authority.certificate,
        more=(
            "controller:\n"
            f"  tls: {{certificate_file: {used.certificate}, key_file: {used.key}{more}}}\n"
            f"  access: {{mode: tokens, operator_tokens_file: {folder / 'tokens'}}}\n"
        ),
    )
    try:
        yield Secured(rest, authority, used, folder)
    finally:
        rest.parent.kill_tree()


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with started(tmp_path_factory.mktemp("rest")) as served:
        eventually(lambda: served.rest.status("/health") == 200, 20, "REST responds")
        yield served


def all_of(client: socket.socket) -> bytes:
    received = b""
    while data := client.recv(65_536):
        received += data
    return received


def health_responds_soon(secured: Secured) -> bool:
    began_s = time.monotonic()
    assert secured.rest.status("/health") == 200
    return time.monotonic() - began_s < REQUEST_S / 2


@pytest.mark.parametrize("start", [b"", b"\x16\x03\x01\x02\x00\x01"])
@pytest.mark.parametrize("connections", [80, CONNECTIONS + 100])
def test_handshakes_that_stop_halfway_hold_nothing(
    secured: Secured, connections: int, start: bytes
) -> None:
    with ExitStack() as open_ones:
        for _ in range(connections):
            client = socket.create_connection(("127.0.0.1", secured.rest.port), timeout=20)
            open_ones.enter_context(client).sendall(start)
        assert health_responds_soon(secured)


def test_requests_that_stop_halfway_hold_nothing(secured: Secured) -> None:
    with ExitStack() as open_ones:
        for _ in range(80):
            open_ones.enter_context(secured.connect()).sendall(GET[:-2])
        assert health_responds_soon(secured)


def test_a_handshake_has_the_deadline_of_a_request(secured: Secured) -> None:
    with socket.create_connection(("127.0.0.1", secured.rest.port), timeout=20) as client:
        client.sendall(b"\x16\x03\x01\x02\x00\x01")
        assert all_of(client) == b""


def test_a_client_without_tls_gets_no_response(secured: Secured) -> None:
    with socket.create_connection(("127.0.0.1", secured.rest.port), timeout=20) as client:
        client.sendall(GET)
        with suppress(ConnectionResetError):
            assert b"200 OK" not in all_of(client)
    assert health_responds_soon(secured)


def test_responses_come_in_order_and_the_end_is_said(secured: Secured) -> None:
    context = secured.trusting()
    with socket.create_connection(("127.0.0.1", secured.rest.port), timeout=20) as raw:
        client = context.wrap_socket(raw, server_hostname="localhost", suppress_ragged_eofs=False)
        client.sendall(GET + GET + LAST)
        assert all_of(client).count(b"HTTP/1.1 200 OK") == 3
        client.close()


def test_a_large_response_and_a_file_arrive_whole(secured: Secured) -> None:
    token = {"Authorization": f"Bearer {TOKEN}"}
    assert secured.rest.request("GET", "/openapi.json", headers=token).json()["paths"]
    assert b"</html>" in secured.rest.request("GET", "/", headers=token).content


def test_streams_of_events_need_a_login(secured: Secured) -> None:
    headers = {"Accept": EVENT_STREAM}
    assert secured.rest.request("GET", "/events", headers=headers).status_code == 401
    login = {"Authorization": f"Bearer {TOKEN}"}
    with secured.rest.opened("/events", headers | login) as response:
        assert response.status_code == 200
        lines = response.iter_lines()
        names = [next(line for line in lines if line.startswith(b"event")) for _ in range(3)]
        assert names == [b"event: problem"] * 3


def test_old_versions_of_tls_are_refused(secured: Secured) -> None:
    context = secured.trusting()
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1 is deprecated"):
        context.minimum_version = ssl.TLSVersion.TLSv1
    with pytest.warns(DeprecationWarning, match="TLSv1_1 is deprecated"):
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionError)):
        secured.connect(context)


def test_the_cookie_of_the_dashboard_is_secure(secured: Secured) -> None:
    url = f"{secured.rest.url}/login"
    response = requests.post(
        url,
        data={"token": TOKEN},
        headers={"Origin": secured.rest.url},
        verify=str(secured.authority.certificate),
        allow_redirects=False,
        timeout=10,
    )
    assert response.status_code == 303
    assert "; Secure" in response.headers["Set-Cookie"]


def test_renewed_certificates_are_served_and_open_connections_go_on(secured: Secured) -> None:
    before = secured.served()
    with secured.connect() as kept:
        secured.certificate.replace(secured.authority.issue("renewal"))
        renewed = secured.served()
        assert renewed != before
        secured.certificate.replace(secured.authority.issue("over", expired=True))
        assert secured.served() == renewed
        assert "certificate has expired" in secured.log
        kept.sendall(LAST)
        assert b"200 OK" in all_of(kept)


def test_clients_without_a_certificate_are_refused_if_it_is_asked_for(tmp_path: Path) -> None:
    with started(tmp_path, client_ca=True) as served:
        own = served.authority.issue("client")
        context = served.trusting()
        context.load_cert_chain(own.certificate, own.key)

        def responds(context: ssl.SSLContext) -> bool:
            try:
                with served.connect(context) as client:
                    client.sendall(LAST)
                    return b"200 OK" in all_of(client)
            except OSError:
                return False

        eventually(lambda: responds(context), 20, "REST responds")
        assert not responds(served.trusting())
