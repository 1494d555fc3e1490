"""A broker with settings that the shared ones do not have, for tests that need one of them each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.proxy import Proxy, ProxyThread

LISTENER = "COUNTED"
RETENTION_MS = 7 * 24 * 3_600_000


@dataclass(frozen=True, slots=True)
class OwnBroker:
    """A cluster that may be frozen, creates topics by itself, keeps records for a week and knows rights.

    `proxy` counts the requests of clients that reach the cluster by it.
    """

    cluster: KafkaCluster
    proxy: Proxy


@contextmanager
def started_broker() -> Iterator[OwnBroker]:
    """A running one; it is gone afterwards."""
    properties = {
        "auto.create.topics.enable": "true",
        "log.retention.ms": str(RETENTION_MS),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with ProxyThread() as proxies:
        cluster = KafkaCluster(name="own", properties=properties, listeners=[LISTENER])
        proxy = proxies.proxy(cluster.listener_port(LISTENER))
        cluster.advertise(LISTENER, proxy.port)
        with cluster:
            yield OwnBroker(cluster, proxy)
