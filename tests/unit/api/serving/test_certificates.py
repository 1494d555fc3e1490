"""Certificates of REST: what is refused at first, and what happens when the files change."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from ureplicator_common.config.access import TlsSettings
from ureplicator_common.errors import ConfigurationError
from ureplicator_common.pages.certificates import RETRY_S, ServerContexts, new_context
from ureplicator_testkit.secured.certificates import Authority, Certificate


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def settings(
    certificate: Certificate, *, key: Path | None = None, client_ca: Path | str = ""
) -> TlsSettings:
    return TlsSettings(
        certificate_file=str(certificate.certificate),
        key_file=str(key or certificate.key),
        client_ca_file=str(client_ca),
    )


def refusal(tls: TlsSettings) -> str:
    with pytest.raises(ConfigurationError) as caught:
        new_context(tls)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_certificates_that_cannot_serve_are_refused_in_one_line(
    authority: Authority, tmp_path: Path
) -> None:
    good, other = authority.issue("good"), authority.issue("other")
    broken = tmp_path / "broken.pem"
    broken.write_text("no certificate")
    encrypted = good.encrypted("password", tmp_path / "encrypted.key")
    assert "expired" in refusal(settings(authority.issue("expired", expired=True)))
    assert "mismatch" in refusal(settings(good, key=other.key))
    assert "No such file" in refusal(settings(good, key=tmp_path / "missing"))
    assert "controller.tls" in refusal(settings(good, key=broken))
    assert "controller.tls" in refusal(settings(good, key=encrypted))
    assert "client_ca_file" in refusal(settings(good, client_ca=broken))
    assert "client_ca_file" in refusal(settings(good, client_ca=tmp_path / "missing"))


def test_renewed_files_make_a_new_context(authority: Authority) -> None:
    used = authority.issue("renewed")
    contexts = ServerContexts(settings(used))
    first = contexts.current(now_s=0.0)
    assert contexts.current(now_s=0.0) is first
    used.replace(authority.issue("renewal"))
    assert contexts.current(now_s=0.0) is not first


def test_files_that_cannot_be_used_leave_the_former_context(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    used = authority.issue("kept")
    contexts = ServerContexts(settings(used))
    first = contexts.current(now_s=0.0)
    used.replace(authority.issue("over", expired=True))
    with caplog.at_level(logging.WARNING):
        assert contexts.current(now_s=0.0) is first
        assert contexts.current(now_s=1.0) is first
        assert contexts.current(now_s=2 * RETRY_S) is first
    assert [record.getMessage() for record in caplog.records] == [
        f"the former certificate is used on: controller.tls: {used.certificate}, {used.key}:"
        " certificate has expired"
    ]
    used.replace(authority.issue("mended"))
    assert contexts.current(now_s=2 * RETRY_S) is not first
