"""Connection settings: the ZooKeeper ensemble and the Kafka clusters."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from ureplicator_common.config.properties import KAFKA_NAMES, PropertyText, masked
from ureplicator_common.config.section import Fault, Faults, Section
from ureplicator_common.errors import ConfigurationError
from ureplicator_common.kafka.security.settings import faults as security_faults
from ureplicator_common.kafka.security.settings import is_security
from ureplicator_common.printable import did_you_mean

_ADDRESS = re.compile(r"(?:[^\s:/,\[\]]+|\[[0-9a-fA-F:.%]+\]):([0-9]{1,5})")


class ZookeeperTlsSettings(Section):
    """TLS of ZooKeeper connections, 1.2 or 1.3. Files that change are used for new connections."""

    ca_file: str = ""
    """File with the authorities of the servers' certificates, PEM; these alone are trusted. Each certificate
    must hold the name that `zookeeper.hosts` gives the server. Empty: no TLS."""
    certificate_file: str = ""
    """File with the certificate of this client and its chain, PEM, where the servers ask for one."""
    key_file: str = ""
    """File with the key of the certificate, PEM."""
    key_password_file: str = ""
    """File with the password of the key, if it is encrypted."""

    @property
    def enabled(self) -> bool:
        return bool(self.ca_file)

    @property
    def files(self) -> tuple[str, ...]:
        """All that are read."""
        named = (self.ca_file, self.certificate_file, self.key_file, self.key_password_file)
        return tuple(file for file in named if file)

    @model_validator(mode="after")
    def _files_fit(self) -> ZookeeperTlsSettings:
        faults = []
        if self.files and not self.ca_file:
            faults.append(Fault("ca_file", "is required for TLS"))
        if self.certificate_file and not self.key_file:
            faults.append(Fault("key_file", "is required with a certificate_file"))
        if self.key_file and not self.certificate_file:
            faults.append(Fault("certificate_file", "is required with a key_file"))
        if self.key_password_file and not self.key_file:
            faults.append(Fault("key_file", "is required with a key_password_file"))
        if faults:
            raise Faults(faults)
        return self


class ZookeeperSettings(Section):
    """The ZooKeeper ensemble that holds the state of the fleet."""

    hosts: str = Field(min_length=1, pattern=r"^[^\s,/]+(,[^\s,/]+)*$")
    """`host:port` of the servers, separated by commas."""

    session_timeout_s: float = Field(default=10.0, ge=1, le=120, allow_inf_nan=False)
    """Session timeout in seconds: a process that is silent for longer counts as dead. Default 10 s:
    longer than a long pause of a JVM or a virtual machine, and far below `rebalance_delay_s`."""

    digest_file: str = ""
    """File with `user:password`, read at start. Each process logs in with it, and each node that it creates
    belongs to that user alone. Default: no login, and nodes that everyone may change."""

    tls: ZookeeperTlsSettings = Field(default_factory=ZookeeperTlsSettings)

    def digest(self) -> str:
        """`user:password`, or "". Raises ConfigurationError."""
        if not self.digest_file:
            return ""
        try:
            text = Path(self.digest_file).read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", "not UTF-8")
            raise ConfigurationError(
                f"zookeeper.digest_file {self.digest_file} cannot be read: {reason}"
            ) from error
        user, _, password = text.partition(":")
        if not user or not password or len(text.splitlines()) != 1:
            raise ConfigurationError(
                f"zookeeper.digest_file {self.digest_file} is not one line user:password"
            )
        return text


class ClusterSettings(Section):
    """One Kafka cluster, by librdkafka's property names whatever client connects to it."""

    properties: Mapping[str, PropertyText]

    @model_validator(mode="before")
    @classmethod
    def _wrap(cls, raw: object) -> object:
        """The file lists the properties directly below the cluster's name."""
        if not isinstance(raw, Mapping):
            raise ValueError("expected a mapping of librdkafka properties")
        if set(raw) == {"properties"} and isinstance(raw["properties"], Mapping):
            return raw
        return {"properties": raw}

    @model_validator(mode="after")
    def _reachable(self) -> ClusterSettings:
        faults = []
        servers = self.properties.get("bootstrap.servers", "")
        if not servers.strip():
            faults.append(Fault("bootstrap.servers", "is required"))
        elif not all(_is_address(server.strip()) for server in servers.split(",")):
            faults.append(Fault("bootstrap.servers", f"{servers!r} is not host:port,host:port,..."))
        faults += [
            Fault(name, f"unknown property{did_you_mean(name, KAFKA_NAMES)}")
            for name in self.properties
            if name not in KAFKA_NAMES and not is_security(name)
        ]
        faults += [Fault(name, text) for name, text in security_faults(self.properties)]
        if faults:
            raise Faults(faults)
        return self

    @property
    def bootstrap(self) -> frozenset[str]:
        servers = self.properties["bootstrap.servers"].split(",")
        return frozenset(server.strip() for server in servers)

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        yield "properties", masked(self.properties)


def _is_address(text: str) -> bool:
    """`host:port`, the host a name or an IP address; the raw lane's own sockets need both."""
    match = _ADDRESS.fullmatch(text)
    return match is not None and 0 < int(match[1]) <= 65_535
