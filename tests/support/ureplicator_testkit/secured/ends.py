"""Two brokers that want TLS and logins, and the properties by which a fleet reaches them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from ureplicator_testkit.secured.brokers import (
    MUTUAL,
    by_certificate,
    by_password,
    by_token,
    secured_cluster,
    set_password,
)
from ureplicator_testkit.secured.certificates import Authority, Certificate
from ureplicator_testkit.secured.tokens import TokenEndpoint
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.proxy import Proxy, ProxyThread
from ureplicator_testkit.servers.server import start_all

REAUTHENTICATION_MS = 5_000
TOKEN_LIFE_S = 10.0


@dataclass
class Secured:
    """Both ends, and who may log in there. Clients with a certificate reach the source by `proxy`."""

    authority: Authority
    client: Certificate
    source: KafkaCluster
    target: KafkaCluster
    endpoint: TokenEndpoint
    proxy: Proxy


@contextmanager
def secured_ends(folder: Path) -> Iterator[Secured]:
    """Both clusters, running, with certificates in the folder."""
    authority = Authority(folder)
    own = authority.issue("broker")
    life_ms = REAUTHENTICATION_MS
    source, target = (
        secured_cluster(name, authority=authority, own=own, reauthentication_ms=life_ms)
        for name in ("source", "target")
    )
    with ExitStack() as stack:
        proxy = stack.enter_context(ProxyThread()).proxy(source.listener_port(MUTUAL))
        source.advertise(MUTUAL, proxy.port)
        start_all(source, target)
        for cluster in (source, target):
            stack.callback(cluster.stop)
        for cluster in (source, target):
            set_password(cluster)
        endpoint = stack.enter_context(TokenEndpoint(own, life_s=TOKEN_LIFE_S))
        client = authority.issue("copier")
        yield Secured(authority, client, source, target, endpoint, proxy)


def logins(secured: Secured, mechanism: str, **more: str) -> dict[str, dict[str, str]]:
    """Properties of both clusters."""
    ends = {"source": secured.source, "target": secured.target}
    match mechanism:
        case "certificate":
            return {
                name: by_certificate(end, secured.authority, secured.client)
                for name, end in ends.items()
            }
        case "OAUTHBEARER":
            return {
                name: by_token(end, secured.authority, secured.endpoint)
                for name, end in ends.items()
            }
    return {
        name: by_password(end, secured.authority, mechanism, **more) for name, end in ends.items()
    }
