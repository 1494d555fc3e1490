"""Quotas and SCRAM users as a real broker shows them."""

from __future__ import annotations

from contextlib import closing

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # exported without __all__
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from kafka.protocol.admin import AlterClientQuotasRequest, AlterClientQuotasResponse

from ureplicator_common.kafka.client import ClusterClient
from ureplicator_common.kafka.principal_requests import KafkaPrincipalReader
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.processes import eventually

pytestmark = pytest.mark.integration

SEEN_S = 10


def test_quotas_and_users_are_shown(source_cluster: KafkaCluster, unique_name: str) -> None:
    with closing(KafkaPrincipalReader(ClusterClient(source_cluster.bootstrap))) as reader:
        assert f"user {unique_name}" not in reader.quotas()
        add_user(source_cluster, unique_name)
        add_quota(source_cluster, unique_name)
        eventually(lambda: unique_name in reader.scram_users(), SEEN_S, "the user is shown")
        assert reader.scram_users()[unique_name] == "SCRAM-SHA-256 with 4096 iterations"
        quota = f"client-id *, user {unique_name}"
        eventually(lambda: quota in reader.quotas(), SEEN_S, "the quota is shown")
        assert reader.quotas()[quota] == "producer_byte_rate 1000"


def add_user(cluster: KafkaCluster, name: str) -> None:
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    with AdminClient({"bootstrap.servers": cluster.bootstrap}) as admin:
        upsert = UserScramCredentialUpsertion(name, info, b"secret")
        for future in admin.alter_user_scram_credentials([upsert]).values():
            future.result(timeout=SEEN_S)


def add_quota(cluster: KafkaCluster, name: str) -> None:
    entries = AlterClientQuotasRequest.EntryData
    entry = entries(
        entity=[
            entries.EntityData(entity_type="user", entity_name=name),
            entries.EntityData(entity_type="client-id", entity_name=None),
        ],
        ops=[entries.OpData(key="producer_byte_rate", value=1_000.0, remove=False)],
    )
    with closing(ClusterClient(cluster.bootstrap)) as client:
        reply = client.call_any(
            lambda: AlterClientQuotasRequest(version=0, entries=[entry], validate_only=False),
            AlterClientQuotasResponse,
        )
    assert [result.error_code for result in reply.entries] == [0]
