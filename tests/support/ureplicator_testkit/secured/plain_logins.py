"""Brokers with an authorizer and several logins by password, without TLS.

Clients of the usual listener are super users, and so is `ROOT`.
"""

from __future__ import annotations

from ureplicator_testkit.servers.clusters import KafkaCluster

LISTENER = "LOGIN"
ROOT = "root"
LOGINS = ("fleet", "bob", "eve", ROOT)
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
ZOOKEEPER_AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"


def properties_with_logins(version: str, *, opens_topics: bool) -> dict[str, str]:
    """Of brokers of a version. `opens_topics`: those without rights are open to everyone."""
    names = ("PLAINTEXT", "INTERNAL", "CONTROLLER")
    users = " ".join(f'user_{login}="{_password(login)}"' for login in LOGINS)
    prefix = f"listener.name.{LISTENER.lower()}."
    return {
        "listener.security.protocol.map": ",".join(
            (*(f"{name}:PLAINTEXT" for name in names), f"{LISTENER}:SASL_PLAINTEXT")
        ),
        f"{prefix}sasl.enabled.mechanisms": "PLAIN",
        f"{prefix}plain.sasl.jaas.config": (
            f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};"
        ),
        "authorizer.class.name": AUTHORIZER if version >= "3" else ZOOKEEPER_AUTHORIZER,
        "super.users": f"User:ANONYMOUS;User:{ROOT}",
        "allow.everyone.if.no.acl.found": str(opens_topics).lower(),
    }


def logged_in(cluster: KafkaCluster, login: str) -> dict[str, str]:
    """Properties of a client."""
    ports = [cluster.listener_port(LISTENER, number + 1) for number in range(cluster.brokers)]
    return {
        "bootstrap.servers": ",".join(f"127.0.0.1:{port}" for port in ports),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": login,
        "sasl.password": _password(login),
    }


def _password(login: str) -> str:
    return f"secret-of-{login}"
