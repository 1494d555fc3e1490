"""Quotas and SCRAM users of a real cluster. One that does not show them is an error, never one without."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kafka.protocol.admin import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)

from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_common.kafka.client import ClusterClient
from ureplicator_common.kafka.errors import refusal

VERSION = 0
"""Both requests have it since they exist (Kafka 2.6 and 2.7)."""
DEFAULT = "*"
MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}


class KafkaPrincipalReader:
    """`PrincipalReader` of one cluster."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client

    def quotas(self) -> Mapping[str, str]:
        reply = self._client.call_any(
            lambda: DescribeClientQuotasRequest(version=VERSION, components=[], strict=False),
            DescribeClientQuotasResponse,
        )
        self._require("quotas", reply, "DESCRIBE_CONFIGS on the cluster")
        return dict(sorted((_entity(entry), _limits(entry)) for entry in reply.entries or ()))

    def scram_users(self) -> Mapping[str, str]:
        reply = self._client.call_any(
            lambda: DescribeUserScramCredentialsRequest(version=VERSION, users=None),
            DescribeUserScramCredentialsResponse,
        )
        self._require("SCRAM users", reply, "DESCRIBE on the cluster")
        return dict(sorted((str(result.user), _mechanisms(result)) for result in reply.results))

    def close(self) -> None:
        self._client.close()

    def _require(self, what: str, reply: Any, right: str) -> None:
        if reply.error_code:
            reason = refusal(reply.error_code, right, self._client.name)
            raise ClusterUnavailable(f"{what}: {reason} {reply.error_message or ''}".strip())


def _entity(entry: Any) -> str:
    parts = sorted((part.entity_type, part.entity_name) for part in entry.entity)
    return ", ".join(f"{kind} {DEFAULT if name is None else _name(name)}" for kind, name in parts)


def _name(name: str) -> str:
    """The name, in quotes where it could be taken for the default or for several entities."""
    plain = name.isprintable() and not set(name) & set(' ,"') and name not in ("", DEFAULT)
    return name if plain else json.dumps(name, ensure_ascii=False)


def _limits(entry: Any) -> str:
    return ", ".join(f"{limit.key} {limit.value:g}" for limit in sorted(entry.values, key=_key))


def _key(value: Any) -> str:
    return str(value.key)


def _mechanisms(result: Any) -> str:
    found = sorted(
        (credential.mechanism, credential.iterations) for credential in result.credential_infos
    )
    return ", ".join(
        f"{MECHANISMS.get(mechanism, f'mechanism {mechanism}')} with {iterations} iterations"
        for mechanism, iterations in found
    )
