"""Settings of TLS with ZooKeeper, and the texts of what is wrong with a connection."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from pydantic import ValidationError

from ureplicator_common.config.clusters import ZookeeperTlsSettings
from ureplicator_common.coordination.tls import check_tls, explained
from ureplicator_common.errors import ConfigurationError


def test_off_unless_there_are_authorities() -> None:
    assert not ZookeeperTlsSettings().enabled
    check_tls(ZookeeperTlsSettings())
    settings = ZookeeperTlsSettings(ca_file="ca", certificate_file="own", key_file="key")
    assert settings.enabled
    assert settings.files == ("ca", "own", "key")


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"certificate_file": "own", "key_file": "key"}, "ca_file"),
        ({"ca_file": "ca", "certificate_file": "own"}, "key_file"),
        ({"ca_file": "ca", "key_file": "key"}, "certificate_file"),
        ({"ca_file": "ca", "key_password_file": "password"}, "key_file"),
    ],
)
def test_files_that_do_not_fit(given: dict[str, str], named: str) -> None:
    with pytest.raises(ValidationError, match=f"{named}.*is required"):
        ZookeeperTlsSettings(**given)


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    with pytest.raises(ConfigurationError, match=r"zookeeper\.tls\.ca_file: .*No such file"):
        check_tls(ZookeeperTlsSettings(ca_file=str(ca)))
    ca.write_text("no certificate")
    with pytest.raises(ConfigurationError, match=f"zookeeper.tls.ca_file: {ca}: "):
        check_tls(ZookeeperTlsSettings(ca_file=str(ca)))


def alert(reason: str) -> ssl.SSLError:
    error = ssl.SSLError(1, f"[SSL: {reason}] (_ssl.c:1)")
    error.reason = reason
    return error


def distrust(code: int, message: str) -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, "")
    error.verify_code, error.verify_message = code, message
    return error


@pytest.mark.parametrize(
    ("error", "reason", "hint"),
    [
        (distrust(20, "unable to get local issuer"), "issuer", "see zookeeper.tls.ca_file"),
        (distrust(10, "certificate has expired"), "expired", "renew it on the server"),
        (distrust(62, "Hostname mismatch."), "mismatch:", "a name of the certificate"),
        (distrust(64, "IP address mismatch."), "mismatch:", "an address of the certificate"),
        (TimeoutError("timed out"), "no response", "TLS port (secureClientPort)?"),
        (ConnectionResetError(104, "reset"), "ended the handshake", "TLS port (secureClientPort)?"),
        (
            ssl.SSLZeroReturnError(6, "TLS/SSL connection has been closed (EOF)"),
            "ended the handshake",
            "TLS port (secureClientPort)?",
        ),
        (alert("WRONG_VERSION_NUMBER"), "wrong version", "TLS port (secureClientPort)?"),
        (alert("TLSV13_ALERT_CERTIFICATE_REQUIRED"), "wants one", "zookeeper.tls.certificate_file"),
        (alert("NO_SHARED_CIPHER"), "no shared cipher", "cipher"),
    ],
)
def test_what_is_wrong_in_one_line(error: OSError, reason: str, hint: str) -> None:
    text = explained(error, server="zk1:2281")
    assert text.startswith("zk1:2281: TLS: ")
    assert reason in text
    assert text.endswith(hint)
    assert "\n" not in text
