"""Settings for the login of REST."""

from __future__ import annotations

import ipaddress
from typing import Literal

from pydantic import model_validator

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
    """File with the tokens that may also change the fleet."""

    @model_validator(mode="after")
    def _files_fit(self) -> AccessSettings:
        if self.mode == "tokens" and not self.operator_tokens_file:
            raise Faults([Fault("operator_tokens_file", "is required with mode: tokens")])
        if self.mode != "tokens" and (self.operator_tokens_file or self.viewer_tokens_file):
            raise Faults([Fault("mode", "must be tokens where a file of tokens is given")])
        return self


def is_loopback(host: str) -> bool:
    """True for addresses that only this machine reaches."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
