"""Certificates that are not accepted, and token endpoints that refuse: without any broker."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from ureplicator_common.kafka import ClusterUnavailable, LoginRefused, UntrustedConnection
from ureplicator_common.kafka.client import Broker, connect
from ureplicator_common.kafka.security.channel import Security
from ureplicator_common.kafka.security.secret import Secret
from ureplicator_common.kafka.security.settings import (
    SecuritySettings,
    TlsSettings,
    TokenLogin,
)
from ureplicator_common.kafka.security.tokens import ClientCredentials
from ureplicator_testkit.control.manual_clock import ManualClock
from ureplicator_testkit.secured.certificates import Authority, Certificate
from ureplicator_testkit.secured.tokens import CLIENT, SECRET, TokenEndpoint


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@contextmanager
def serving(own: Certificate, *, clients: Authority | None = None) -> Iterator[Broker]:
    """A peer that speaks TLS, and no Kafka."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own.certificate, own.key)
    if clients is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(clients.certificate)

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection, _ = server.accept()
                with closing(connection), suppress(OSError):
                    connection.settimeout(10)
                    context.wrap_socket(connection, server_side=True).close()

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield Broker(1, *server.getsockname())
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def trusting(
    ca: Path, *, clock: ManualClock | None = None, own: Certificate | None = None
) -> Security:
    certificate, key = (str(own.certificate), str(own.key)) if own else ("", "")
    tls = TlsSettings(ca=str(ca), certificate=certificate, key=key)
    clock = clock or ManualClock()
    return Security(SecuritySettings(tls=tls), cluster="west", now_s=clock.monotonic_s)


def refusal(broker: Broker, security: Security) -> str:
    with pytest.raises(UntrustedConnection) as refused:
        connect(broker, security=security)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def accepted(broker: Broker, security: Security) -> None:
    connect(broker, security=security).connection.close()


def test_the_certificate_of_the_broker(authority: Authority) -> None:
    with serving(authority.issue("good")) as broker:
        accepted(broker, trusting(authority.certificate))


@pytest.mark.parametrize(
    ("hosts", "expired", "text"),
    [
        ("DNS:kafka.example.com", False, "IP address mismatch"),
        ("IP:127.0.0.1", True, "certificate has expired"),
    ],
)
def test_a_certificate_that_is_not_accepted(
    authority: Authority, hosts: str, expired: bool, text: str
) -> None:
    with serving(authority.issue("bad", hosts=hosts, expired=expired)) as broker:
        assert f"cluster west at {broker}: TLS: " in (
            reason := refusal(broker, trusting(authority.certificate))
        )
        assert text in reason


def test_a_name_that_is_not_that_of_the_certificate(authority: Authority) -> None:
    with serving(authority.issue("named", hosts="DNS:kafka.example.com")) as broker:
        named = Broker(1, "localhost", broker.port)
        assert "Hostname mismatch" in refusal(named, trusting(authority.certificate))


def test_an_unknown_authority_is_mended_by_its_file(authority: Authority, tmp_path: Path) -> None:
    """A changed file is tried at once; without a change the broker is left alone for a while."""
    ca, clock = tmp_path / "ca.pem", ManualClock()
    security = trusting(ca, clock=clock)
    with serving(authority.issue("known")) as broker:
        assert "ssl.ca.location" in refusal(broker, security)
        stranger = Authority(tmp_path, "stranger")
        ca.write_bytes(stranger.certificate.read_bytes())
        first = refusal(broker, security)
        assert "TLS: " in first
    assert refusal(broker, security) == first
    clock.advance(1.0)
    with pytest.raises(ClusterUnavailable, match="unreachable"):
        connect(broker, security=security)
    with serving(authority.issue("again")) as broker:
        ca.write_bytes(authority.certificate.read_bytes())
        accepted(broker, security)


def test_a_key_of_another_certificate_is_used_when_both_fit(
    authority: Authority, tmp_path: Path
) -> None:
    """The former pair is used until then."""
    own = Authority(tmp_path, "other").issue("own")
    own.replace(authority.issue("first"))
    security = trusting(authority.certificate, own=own)
    with serving(authority.issue("server"), clients=authority) as broker:
        accepted(broker, security)
        own.key.write_bytes(authority.issue("second").key.read_bytes())
        accepted(broker, security)
        own.certificate.write_bytes(authority.issue("second").certificate.read_bytes())
        own.replace(authority.issue("third"))
        accepted(broker, security)


def test_a_key_that_is_encrypted_asks_for_nothing(authority: Authority, tmp_path: Path) -> None:
    own = authority.issue("locked")
    encrypted = own.encrypted("hunter2", tmp_path / "locked.key")
    tls = TlsSettings(
        str(authority.certificate), str(own.certificate), str(encrypted), Secret("p", "hunter2")
    )
    with serving(authority.issue("server"), clients=authority) as broker:
        accepted(broker, Security(SecuritySettings(tls=tls)))
        for password in (None, Secret("p", "hunter3")):
            wrong = TlsSettings(tls.ca, tls.certificate, tls.key, password)
            assert "hunter" not in refusal(broker, Security(SecuritySettings(tls=wrong)))


def test_a_token_and_who_does_not_get_one(authority: Authority) -> None:
    with TokenEndpoint(authority.issue("endpoint"), life_s=60) as endpoint:
        ca = str(authority.certificate)
        good = TokenLogin(CLIENT, Secret("s", SECRET), endpoint.url, ca=ca)
        token = ClientCredentials(good)()
        assert token.life_s == 60
        assert token.text not in repr(token)
        wrong = TokenLogin(CLIENT, Secret("s", "hunter2"), endpoint.url, ca=ca)
        with pytest.raises(LoginRefused, match="status 401 'invalid_client'"):
            ClientCredentials(wrong)()
        untrusted = TokenLogin(CLIENT, Secret("s", SECRET), endpoint.url)
        with pytest.raises(LoginRefused, match="token endpoint 127"):
            ClientCredentials(untrusted)()
