"""A broker whose clients must use TLS and SASL, or a certificate of their own.

    SECURE   SASL_SSL: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER, with unsigned tokens
    MUTUAL   SSL, and clients need a certificate of the authority

The usual listener stays, for the test's own clients. Who logs in may do everything, until a topic is
`reserved`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # exported without __all__
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from ureplicator_testkit.secured.certificates import Authority, Certificate
from ureplicator_testkit.secured.tokens import CLIENT, SECRET, TokenEndpoint
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.processes import eventually

USER, PASSWORD = "alice", "a-secret,that=is long"
SECURE, MUTUAL = "SECURE", "MUTUAL"
SEEN_S = 10
"""A broker shows a change of the controller when it has read it from the log of metadata."""
_MECHANISMS = {
    "SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256,
    "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512,
}
_LOGIN = "org.apache.kafka.common.security"


def secured_cluster(
    name: str,
    *,
    authority: Authority,
    own: Certificate,
    reauthentication_ms: int = 0,
    properties: Mapping[str, str] | None = None,
) -> KafkaCluster:
    """See `secured_properties`; `properties` win over them."""
    secured = secured_properties(
        authority=authority, own=own, reauthentication_ms=reauthentication_ms
    )
    return KafkaCluster(
        name=name, properties={**secured, **(properties or {})}, listeners=(SECURE, MUTUAL)
    )


def secured_properties(
    *, authority: Authority, own: Certificate, reauthentication_ms: int = 0
) -> dict[str, str]:
    """Properties of brokers with both listeners. `own`: the broker's certificate; `reauthentication_ms`: life
    of a login with SASL, 0 without end."""
    tls = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(own.both),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.certificate),
    }
    names = ("PLAINTEXT", "INTERNAL", "CONTROLLER")
    plain = f'{_LOGIN}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
    scram = f"{_LOGIN}.scram.ScramLoginModule required;"
    prefix = f"listener.name.{SECURE.lower()}."
    return {
        "listener.security.protocol.map": ",".join(
            (*(f"{name}:PLAINTEXT" for name in names), f"{SECURE}:SASL_SSL", f"{MUTUAL}:SSL")
        ),
        **{
            f"listener.name.{name.lower()}.{k}": v
            for name in (SECURE, MUTUAL)
            for k, v in tls.items()
        },
        f"listener.name.{MUTUAL.lower()}.ssl.client.auth": "required",
        f"{prefix}sasl.enabled.mechanisms": ",".join(("PLAIN", "OAUTHBEARER", *_MECHANISMS)),
        f"{prefix}plain.sasl.jaas.config": plain,
        f"{prefix}oauthbearer.sasl.jaas.config": (
            f'{_LOGIN}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="b";'
        ),
        **{f"{prefix}{name.lower()}.sasl.jaas.config": scram for name in _MECHANISMS},
        # Each network thread of a listener takes a new certificate by itself: with one, a certificate that
        # a client was shown is every client's.
        "num.network.threads": "1",
        "connections.max.reauth.ms": str(reauthentication_ms),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "allow.everyone.if.no.acl.found": "true",
    }


def set_password(cluster: KafkaCluster, password: str = PASSWORD, *, user: str = USER) -> None:
    """Set a password for SCRAM, of both kinds."""
    admin = cluster.admin()
    for mechanism in _MECHANISMS.values():
        change = UserScramCredentialUpsertion(
            user, ScramCredentialInfo(mechanism, 4096), password.encode()
        )
        for future in admin.alter_user_scram_credentials([change]).values():
            future.result(timeout=30)


def give_certificate(cluster: KafkaCluster, own: Certificate, listener: str) -> None:
    """Replace the certificate of the running broker at one listener, for connections to come."""
    name = f"listener.name.{listener.lower()}.ssl.keystore.location"
    entry = ConfigEntry(name, str(own.both), incremental_operation=AlterConfigOpType.SET)
    broker = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
    admin = cluster.admin()
    for future in admin.incremental_alter_configs([broker]).values():
        future.result(timeout=30)


def reserved(cluster: KafkaCluster, topic: str) -> AbstractContextManager[None]:
    """Nobody that logs in has a right for the topic, meanwhile."""
    where = (ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:nobody", "*")
    return granted(cluster, [AclBinding(*where, AclOperation.ALL, AclPermissionType.ALLOW)])


@contextmanager
def granted(cluster: KafkaCluster, rights: Sequence[AclBinding]) -> Iterator[None]:
    """These entries are in the list of rights, meanwhile: also those that deny something. The broker that is
    asked for them has them then; others follow."""
    admin = cluster.admin()

    def shown(right: AclBinding) -> bool:
        return bool(admin.describe_acls(_exactly(right)).result(timeout=30))

    for future in admin.create_acls(list(rights)).values():
        future.result(timeout=30)
    try:
        eventually(lambda: all(map(shown, rights)), SEEN_S, "the rights are in force")
        yield
    finally:
        for removed in admin.delete_acls([_exactly(entry) for entry in rights]).values():
            removed.result(timeout=30)
        eventually(lambda: not any(map(shown, rights)), SEEN_S, "the rights are gone")


def _exactly(right: AclBinding) -> AclBindingFilter:
    return AclBindingFilter(
        right.restype,
        right.name,
        right.resource_pattern_type,
        right.principal,
        right.host,
        right.operation,
        right.permission_type,
    )


def by_password(
    cluster: KafkaCluster,
    authority: Authority,
    mechanism: str,
    **more: str,
) -> dict[str, str]:
    """Properties of a client."""
    return {
        **_by_login(cluster, authority, mechanism),
        "sasl.username": USER,
        **(more or {"sasl.password": PASSWORD}),
    }


def by_token(
    cluster: KafkaCluster, authority: Authority, endpoint: TokenEndpoint
) -> dict[str, str]:
    return {
        **_by_login(cluster, authority, "OAUTHBEARER"),
        "sasl.oauthbearer.client.id": CLIENT,
        "sasl.oauthbearer.client.secret": SECRET,
        "sasl.oauthbearer.token.endpoint.url": endpoint.url,
        "https.ca.location": str(authority.certificate),
    }


def _by_login(cluster: KafkaCluster, authority: Authority, mechanism: str) -> dict[str, str]:
    return {
        "bootstrap.servers": f"127.0.0.1:{cluster.listener_port(SECURE)}",
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(authority.certificate),
        "sasl.mechanism": mechanism,
    }


def by_certificate(
    cluster: KafkaCluster, authority: Authority, certificate: Certificate
) -> dict[str, str]:
    return {
        "bootstrap.servers": f"127.0.0.1:{cluster.listener_port(MUTUAL)}",
        "security.protocol": "SSL",
        "ssl.ca.location": str(authority.certificate),
        "ssl.certificate.location": str(certificate.certificate),
        "ssl.key.location": str(certificate.key),
    }
