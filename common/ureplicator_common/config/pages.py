"""Settings for the pages that processes serve of themselves."""

from __future__ import annotations

from ureplicator_common.config.access import TlsSettings
from ureplicator_common.config.section import Section


class PagesSettings(Section):
    """Login and TLS of the pages of workers and auditors, and of `controller.metrics_port`."""

    token_file: str = ""
    """File with one token of at least 20 random characters that `/status` and `/metrics` ask for, as
    `Authorization: Bearer`; `/health` and `/ready` are open, for probes. The file is read again when it
    changes. Empty: no login, which is said at start if others than this machine reach the pages."""
    tls: TlsSettings = TlsSettings()

    @property
    def protected(self) -> bool:
        return bool(self.token_file or self.tls.client_ca_file)
