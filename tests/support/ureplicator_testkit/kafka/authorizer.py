"""Model of the brokers' authorizer: who may do what with a topic.

As `StandardAuthorizer` and, before Kafka 3.0, `AclAuthorizer` decide:

1. a super user may do everything;
2. a right concerns a topic by its name, by a prefix of it, or as a right on all topics (`*`);
3. a denial of the operation, or of ALL, to the principal or to everyone, from the host or from any, wins;
4. else the same with rights that allow it, where READ, WRITE, DELETE and ALTER allow DESCRIBE, too, and
   ALTER_CONFIGS allows DESCRIBE_CONFIGS;
5. a topic that no right concerns at all is open to everyone or to nobody, by a setting of the brokers.
"""

from __future__ import annotations

from collections.abc import Collection

from ureplicator_common.kafka.acls import TopicAcl

OPERATIONS = (
    *("READ", "WRITE", "CREATE", "DELETE", "ALTER"),
    *("DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"),
)
IMPLIED = {
    "DESCRIBE": {"DESCRIBE", "READ", "WRITE", "DELETE", "ALTER"},
    "DESCRIBE_CONFIGS": {"DESCRIBE_CONFIGS", "ALTER_CONFIGS"},
}


class Authorizer:
    """Decisions by these rights. `opens_topics`: `allow.everyone.if.no.acl.found`."""

    def __init__(
        self,
        acls: Collection[TopicAcl],
        *,
        opens_topics: bool = False,
        super_users: Collection[str] = (),
    ) -> None:
        self._acls = acls
        self._opens_topics = opens_topics
        self._super_users = super_users

    def allows(self, principal: str, host: str, operation: str, topic: str) -> bool:
        if principal in self._super_users:
            return True
        concerned = [acl for acl in self._acls if _concerns(acl, topic)]
        if not concerned:
            return self._opens_topics
        theirs = [acl for acl in concerned if _is_for(acl, principal, host)]
        denied = {acl.operation for acl in theirs if acl.permission == "DENY"}
        allowed = {acl.operation for acl in theirs if acl.permission == "ALLOW"}
        granting = IMPLIED.get(operation, {operation}) | {"ALL"}
        return not denied & {operation, "ALL"} and bool(allowed & granting)

    def operations(self, principal: str, host: str, topic: str) -> frozenset[str]:
        return frozenset(
            operation for operation in OPERATIONS if self.allows(principal, host, operation, topic)
        )


def _concerns(acl: TopicAcl, topic: str) -> bool:
    if acl.pattern == "PREFIXED":
        return topic.startswith(acl.name)
    return acl.name in (topic, "*")


def _is_for(acl: TopicAcl, principal: str, host: str) -> bool:
    return acl.principal in (principal, "User:*") and acl.host in (host, "*")
