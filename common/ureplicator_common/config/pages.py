"""Settings for the pages that processes serve of themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ureplicator_common.config.access import TlsSettings, is_loopback
from ureplicator_common.config.section import Fault, Section


class PagesSettings(Section):
    """Login and TLS of the pages of workers and auditors, and of `controller.metrics_port`."""

    token_file: str = ""
    """File with one token of at least 20 random characters that `/status` and `/metrics` ask for, as
    `Authorization: Bearer`; `/health` and `/ready` are open, for probes. The file is read again when it
    changes. Required where pages listen on other addresses than of this machine."""
    open: bool = False
    """true: no token at any address; who reaches the pages may read them. It is said at start."""
    tls: TlsSettings = TlsSettings()

    @property
    def protected(self) -> bool:
        return bool(self.token_file or self.tls.client_ca_file)


def page_faults(pages: PagesSettings, hosts: Mapping[str, str]) -> Iterator[Fault]:
    """`hosts`: setting -> address that pages listen on."""
    if pages.open or pages.protected:
        return
    for key, host in hosts.items():
        if not is_loopback(host):
            yield Fault(
                "pages.token_file",
                f"{key} {host} shows pages to others than this machine: set it, or pages.open to true",
            )
