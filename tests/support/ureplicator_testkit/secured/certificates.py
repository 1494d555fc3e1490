"""An authority and the certificates that it issues, made by openssl in a folder of the test."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

HOSTS = "IP:127.0.0.1,DNS:localhost"


@dataclass(frozen=True)
class Certificate:
    """`both`: key and certificate in one file, as brokers read them."""

    certificate: Path
    key: Path
    both: Path

    def replace(self, other: Certificate) -> None:
        """Put another one in its place, as a rotation does: each file at once."""
        for mine, theirs in ((self.key, other.key), (self.certificate, other.certificate)):
            written = mine.with_suffix(".new")
            written.write_bytes(theirs.read_bytes())
            os.replace(written, mine)

    def encrypted(self, password: str, path: Path) -> Path:
        """The key, encrypted, at this path."""
        _openssl("pkcs8", "-topk8", "-in", self.key, "-out", path, "-passout", f"pass:{password}")
        return path


class Authority:
    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.certificate, self._key = folder / f"{name}.pem", folder / f"{name}.key"
        self._new_key(self._key)
        _openssl(
            *("req", "-x509", "-new", "-key", self._key, "-out", self.certificate),
            *("-days", 30, "-subj", f"/CN={name}"),
            *("-addext", "keyUsage=critical,keyCertSign,cRLSign"),
        )

    def issue(
        self, name: str, *, subject: str = "", hosts: str = HOSTS, expired: bool = False
    ) -> Certificate:
        """One for servers and clients. `subject`: common name, by default the name of the files; `expired`:
        since yesterday."""
        key, request = self._folder / f"{name}.key", self._folder / f"{name}.csr"
        certificate, extensions = self._folder / f"{name}.pem", self._folder / f"{name}.ext"
        self._new_key(key)
        _openssl("req", "-new", "-key", key, "-out", request, "-subj", f"/CN={subject or name}")
        extensions.write_text(f"subjectAltName={hosts}\nauthorityKeyIdentifier=keyid\n")
        dates = ("-days", "-1") if expired else ("-days", "30")
        _openssl(
            *("x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self._key),
            *("-CAcreateserial", "-extfile", extensions, "-out", certificate, *dates),
        )
        both = self._folder / f"{name}-both.pem"
        both.write_bytes(key.read_bytes() + certificate.read_bytes())
        return Certificate(certificate, key, both)

    @staticmethod
    def _new_key(path: Path) -> None:
        options = ("-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256")
        _openssl("genpkey", *options, "-out", path)


def is_shown(own: Certificate, port: int, *, client: Certificate) -> bool:
    """True if the server at this port shows the certificate to a client that has one of its own."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(client.certificate, client.key)
    with (
        socket.create_connection(("127.0.0.1", port), timeout=10) as connection,
        context.wrap_socket(connection) as wrapped,
    ):
        found = wrapped.getpeercert(binary_form=True)
    return found == ssl.PEM_cert_to_DER_cert(own.certificate.read_text())


def _openssl(*arguments: object) -> None:
    command = ["openssl", *map(str, arguments)]
    subprocess.run(command, check=True, capture_output=True)  # noqa: S603  # of this test
