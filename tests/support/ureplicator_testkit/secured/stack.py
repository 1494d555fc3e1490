"""Additions of `scripts/stack up --secure`: TLS and logins on every hop, with files in a folder of the stack.

Brokers keep their plaintext listener for the clients of who plays with the stack; the written configuration
does not name it.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from ureplicator_testkit.secured.brokers import (
    MUTUAL,
    SECURE,
    by_password,
    secured_properties,
    set_password,
)
from ureplicator_testkit.secured.certificates import Authority
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.zookeeper import ServerTls

MECHANISM = "SCRAM-SHA-512"
LISTENERS = (SECURE, MUTUAL)


class StackSecurity:
    """An authority, one certificate for all servers, and a secret for each login."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder)
        self.own = self.authority.issue("server")
        self.ca = self.authority.certificate
        self._password = secrets.token_urlsafe(24)
        self._password_file = _secret(folder / "kafka-password", self._password)
        self._zookeeper_user = _secret(
            folder / "zookeeper-user", f"fleet:{secrets.token_urlsafe(24)}"
        )
        token = secrets.token_hex(32)
        self.token = _secret(folder / "token", token)
        self._operators = _secret(folder / "operator-tokens", f"operator {token}")

    def zookeeper(self) -> ServerTls:
        return ServerTls(self.own.both, self.ca)

    def broker_properties(self) -> dict[str, str]:
        return secured_properties(authority=self.authority, own=self.own)

    def let_in(self, *clusters: KafkaCluster) -> None:
        """Make the user at these running clusters."""
        for cluster in clusters:
            set_password(cluster, self._password)

    def environment(self) -> dict[str, str]:
        """Names by which the operators' commands find the files."""
        return {"UREPLICATOR_TOKEN_FILE": str(self.token), "UREPLICATOR_CA_FILE": str(self.ca)}

    def configuration(
        self, text: str, *, zookeeper: str, clusters: Mapping[str, KafkaCluster]
    ) -> str:
        """The configuration of the stack, with TLS and a login for each connection."""
        config: dict[str, Any] = yaml.safe_load(text)
        config["zookeeper"] |= {
            "hosts": zookeeper,
            "digest_file": str(self._zookeeper_user),
            "tls": {"ca_file": str(self.ca)},
        }
        more = {"sasl.password.file": str(self._password_file)}
        for name, cluster in clusters.items():
            config["clusters"][name] = by_password(cluster, self.authority, MECHANISM, **more)
        config["controller"] |= {
            "tls": {"certificate_file": str(self.own.certificate), "key_file": str(self.own.key)},
            "access": {"mode": "tokens", "operator_tokens_file": str(self._operators)},
        }
        comment = text.partition("\n")[0]
        return f"{comment}\n{yaml.safe_dump(config, sort_keys=False)}"


def _secret(path: Path, text: str) -> Path:
    """A file that nobody else may read."""
    path.touch(mode=0o600)
    path.write_text(f"{text}\n")
    return path
