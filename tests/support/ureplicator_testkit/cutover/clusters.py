"""Two clusters with an authorizer, the logins of a fleet and of applications, and rights by name for each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # exported without __all__
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from ureplicator_testkit.records.topics import QUIET, RESPONSE_S
from ureplicator_testkit.secured.plain_logins import LISTENER, logged_in, properties_with_logins
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.java import KAFKA_VERSIONS
from ureplicator_testkit.servers.server import start_all

EVERYTHING = (
    (ResourceType.TOPIC, "*"),
    (ResourceType.GROUP, "*"),
    (ResourceType.TRANSACTIONAL_ID, "*"),
    (ResourceType.BROKER, "kafka-cluster"),
)
FLEET, APPLICATION = "fleet", "bob"


class BothEnds(NamedTuple):
    source: KafkaCluster
    target: KafkaCluster

    def properties(self, login: str) -> dict[str, dict[str, str]]:
        return {"source": logged_in(self.source, login), "target": logged_in(self.target, login)}


@contextmanager
def ends_with_rights(*, brokers: int = 1) -> Iterator[BothEnds]:
    """Both clusters, running. Nobody may do what no right allows."""
    version = KAFKA_VERSIONS[-1]
    source, target = (
        KafkaCluster(
            brokers,
            name=f"{name}-with-rights",
            version=version,
            properties=properties_with_logins(version, opens_topics=False),
            listeners=[LISTENER],
            combined=brokers > 1,
            heap_mb=320,
        )
        for name in ("source", "target")
    )
    with ExitStack() as stack:
        start_all(source, target)
        for cluster in (source, target):
            stack.callback(cluster.stop)
            _allow(cluster)
        yield BothEnds(source, target)


def _allow(cluster: KafkaCluster) -> None:
    """Both logins may do all, each by rights of its own."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})
    rights = [
        AclBinding(
            kind,
            name,
            ResourcePatternType.LITERAL,
            f"User:{login}",
            "*",
            AclOperation.ALL,
            AclPermissionType.ALLOW,
        )
        for login in (FLEET, APPLICATION)
        for kind, name in EVERYTHING
    ]
    for created in admin.create_acls(rights).values():
        created.result(timeout=RESPONSE_S)
