"""Settings for the login and TLS of REST."""

from __future__ import annotations

import ipaddress
from typing import Literal

from pydantic import model_validator

from ureplicator_common.config.oidc import OidcSettings
from ureplicator_common.config.section import Fault, Faults, Section


class AccessSettings(Section):
    """Login of REST and the dashboard."""

    mode: Literal["loopback", "tokens", "open"] = "loopback"
    """`tokens`: each call but `/health` and `/ready` needs a token. `loopback`: no login, and
    `controller.host` must be an address of this machine only. `open`: no login at any address; who reaches
    the port may do everything."""
    viewer_tokens_file: str = ""
    """File with the tokens that may read: a line `NAME TOKEN [until=TIME]` each. TOKEN has at least 20
    random characters, or is `sha256:` and its hash. The file is read again when it changes."""
    operator_tokens_file: str = ""
    """File with the tokens that may also change the fleet. Required without `oidc`."""
    oidc: OidcSettings = OidcSettings()

    @model_validator(mode="after")
    def _files_fit(self) -> AccessSettings:
        files = self.operator_tokens_file or self.viewer_tokens_file
        if self.mode == "tokens" and not (self.operator_tokens_file or self.oidc.enabled):
            raise Faults([Fault("operator_tokens_file", "is required with mode: tokens, or oidc")])
        if self.mode != "tokens" and (files or self.oidc.enabled):
            raise Faults([Fault("mode", "must be tokens where a file of tokens or oidc is given")])
        return self


class TlsSettings(Section):
    """TLS of a server, 1.2 or 1.3. Files that change are used for new connections."""

    certificate_file: str = ""
    """File with the certificate and its chain, PEM. Empty: no TLS."""
    key_file: str = ""
    """File with the key of the certificate, PEM, not encrypted."""
    client_ca_file: str = ""
    """File with the authorities of clients, PEM: each client must then present a certificate of one of
    them, for `/health` too. Tokens are asked for besides."""

    @property
    def enabled(self) -> bool:
        return bool(self.certificate_file)

    @property
    def files(self) -> tuple[str, str, str]:
        return self.certificate_file, self.key_file, self.client_ca_file

    @model_validator(mode="after")
    def _files_fit(self) -> TlsSettings:
        if self.certificate_file and not self.key_file:
            raise Faults([Fault("key_file", "is required with a certificate_file")])
        if not self.certificate_file and (self.key_file or self.client_ca_file):
            raise Faults([Fault("certificate_file", "is required for TLS")])
        return self


def is_loopback(host: str) -> bool:
    """True for addresses that only this machine reaches."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
