"""Login and TLS of the pages of workers, auditors and the control loop."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
import requests

from ureplicator_common.config.access import TlsSettings
from ureplicator_common.config.pages import PagesSettings, page_faults
from ureplicator_common.config.settings import load_settings
from ureplicator_common.errors import ConfigurationError
from ureplicator_common.pages.web import WebServer, json_page
from ureplicator_testkit.secured.certificates import Authority

TOKEN, NEXT = "token-of-pages-0123456789", "renewed-token-0123456789"  # of this test
PAGES = {
    path: json_page(lambda: (HTTPStatus.OK, {"fine": True}))
    for path in ("/status", "/metrics", "/health", "/ready")
}


@contextmanager
def served(settings: PagesSettings, *, host: str = "127.0.0.1") -> Iterator[WebServer]:
    server = WebServer(host=host, port=0, pages=settings)
    try:
        server.show(PAGES)
        yield server
    finally:
        server.close()


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    return path


def status(server: WebServer, path: str, header: str = "") -> int:
    headers = {"Authorization": header} if header else {}
    url = f"http://127.0.0.1:{server.port}{path}"
    return requests.get(url, headers=headers, timeout=10).status_code


def test_pages_ask_for_the_token_and_probes_do_not(token_file: Path) -> None:
    with served(PagesSettings(token_file=str(token_file))) as server:
        for path in ("/", "/status", "/metrics", "/metrics/", "/nowhere", "//status", "/health/x"):
            for header in (
                "",
                "Bearer",
                f"Basic {TOKEN}",
                f"Bearer {TOKEN}x",
                f"Bearer {TOKEN[:-1]}",
            ):
                assert status(server, path, header) == 401, (path, header)
        assert status(server, f"/status?token={TOKEN}") == 401
        assert status(server, "/", f"bearer {TOKEN}") == 200
        assert status(server, "/metrics", f"Bearer {TOKEN}") == 200
        assert status(server, "/health") == status(server, "/ready") == 200


def test_a_token_is_renewed_and_a_wrong_file_leaves_the_former_one(
    token_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with served(PagesSettings(token_file=str(token_file))) as server:
        token_file.write_text(NEXT)
        assert status(server, "/status", f"Bearer {TOKEN}") == 401
        assert status(server, "/status", f"Bearer {NEXT}") == 200
        token_file.write_text("short")
        assert status(server, "/status", f"Bearer {NEXT}") == 200
        token_file.unlink()
        assert status(server, "/status", f"Bearer {NEXT}") == 200
    assert str(token_file) in caplog.text
    assert NEXT not in caplog.text


@pytest.mark.parametrize("content", ["", "short\n", f"{TOKEN}\n{NEXT}\n", f"name {TOKEN}\n"])
def test_a_file_without_one_token_ends_the_start(token_file: Path, content: str) -> None:
    token_file.write_text(content)
    with pytest.raises(ConfigurationError, match=r"pages\.token_file") as caught:
        WebServer(host="127.0.0.1", port=0, pages=PagesSettings(token_file=str(token_file)))
    assert TOKEN not in str(caught.value)


def test_tls_with_a_renewed_certificate_and_clients_that_stop_halfway(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    used = authority.issue("pages")
    tls = TlsSettings(certificate_file=str(used.certificate), key_file=str(used.key))
    with served(PagesSettings(tls=tls)) as server:
        url, ca = f"https://127.0.0.1:{server.port}/status", str(authority.certificate)
        with socket.create_connection(("127.0.0.1", server.port)) as silent:
            silent.sendall(b"\x16\x03\x01")
            assert requests.get(url, verify=ca, timeout=10).json() == {"fine": True}
        with pytest.raises(requests.exceptions.SSLError):
            requests.get(url, timeout=10)
        with pytest.raises(requests.exceptions.ConnectionError):
            status(server, "/status")
        other = Authority(tmp_path / "other")
        used.replace(other.issue("renewal"))
        renewed = requests.get(url, verify=str(other.certificate), timeout=10)
        assert renewed.status_code == 200


def test_certificates_of_clients(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    own, ca = authority.issue("both"), str(authority.certificate)
    files = {"certificate_file": str(own.certificate), "key_file": str(own.key)}
    tls = TlsSettings(**files, client_ca_file=ca)
    with served(PagesSettings(tls=tls)) as server:
        url = f"https://127.0.0.1:{server.port}/status"
        with pytest.raises(requests.exceptions.ConnectionError):
            requests.get(url, verify=ca, timeout=10)
        certificate = (str(own.certificate), str(own.key))
        assert requests.get(url, verify=ca, cert=certificate, timeout=10).status_code == 200


def test_open_pages_are_said(caplog: pytest.LogCaptureFixture, token_file: Path) -> None:
    with caplog.at_level(logging.WARNING):
        with served(PagesSettings(token_file=str(token_file)), host="0.0.0.0"):  # noqa: S104
            assert caplog.text == ""
        with served(PagesSettings()):
            assert caplog.text == ""
        with served(PagesSettings(), host="0.0.0.0"):  # noqa: S104
            assert "everyone who reaches 0.0.0.0 may read the pages" in caplog.text


@pytest.mark.parametrize(
    ("hosts", "pages", "fault"),
    [
        ({"worker.bind": "127.0.0.1", "audit.host": "::1"}, {}, ""),
        ({"worker.bind": "0.0.0.0"}, {}, "worker.bind 0.0.0.0 shows pages"),  # noqa: S104
        ({"audit.host": "auditor-1"}, {"tls": {"certificate_file": "c", "key_file": "k"}}, "audit"),
        ({"worker.bind": "10.0.0.1"}, {"open": True}, ""),
        ({"worker.bind": "10.0.0.1"}, {"token_file": "/token"}, ""),
    ],
)
def test_pages_for_others_need_a_token(
    hosts: Mapping[str, str], pages: Mapping[str, Any], fault: str
) -> None:
    faults = [str(found) for found in page_faults(PagesSettings.model_validate(pages), hosts)]
    assert len(faults) == bool(fault)
    assert fault in "".join(faults)


def test_the_configuration_refuses_them(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(
        "fleet: f\nzookeeper: {hosts: 'z:1'}\nclusters: {a: {bootstrap.servers: 'a:1'},"
        " b: {bootstrap.servers: 'b:1'}}\nroutes: [{source: a, target: b}]\n"
        "worker: {bind: 0.0.0.0}\naudit: {host: 0.0.0.0}\n"
        "controller: {host: 0.0.0.0, access: {mode: open}}\n"
    )
    with pytest.raises(ConfigurationError) as caught:
        load_settings(path, environ={})
    for key in ("worker.bind", "audit.host", "controller.host"):
        assert f"{key} 0.0.0.0 shows pages" in str(caught.value)
    load_settings(path, environ={}, overrides=("pages.open=true",))
