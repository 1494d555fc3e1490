"""Certificates of tests pass the strict check of RFC 5280, with which Python from 3.13 on verifies."""

from __future__ import annotations

import subprocess
from pathlib import Path

from ureplicator_testkit.secured.certificates import Authority


def test_an_issued_certificate_passes_the_strict_check(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    issued = authority.issue("server")
    command = ["openssl", "verify", "-x509_strict", "-CAfile"]
    files = [str(authority.certificate), str(issued.certificate)]
    done = subprocess.run([*command, *files], capture_output=True, text=True, check=False)  # noqa: S603
    assert done.returncode == 0, done.stderr
