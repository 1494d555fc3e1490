"""Access rights on the topics of one cluster (ACLs); `acl_requests` implements the interface."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from ureplicator_common.errors import OperatingError, PermanentError
from ureplicator_common.model import Content

LITERAL, PREFIXED = "LITERAL", "PREFIXED"
ALLOW, DENY = "ALLOW", "DENY"
ALL, READ, WRITE, DELETE = "ALL", "READ", "WRITE", "DELETE"
CREATE, ALTER, DESCRIBE = "CREATE", "ALTER", "DESCRIBE"
DESCRIBE_CONFIGS, ALTER_CONFIGS = "DESCRIBE_CONFIGS", "ALTER_CONFIGS"
OPERATIONS = frozenset(
    {READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS}
)
"""All that there are on topics: what ALL stands for."""
ALL_USERS, ALL_TOPICS, ALL_HOSTS = "User:*", "*", "*"


class NoAuthorizer(PermanentError):
    """The brokers of the cluster have no authorizer, so there are no access rights."""


class AclRefused(PermanentError):
    """The cluster refuses to add or remove an access right."""


@dataclass(frozen=True, slots=True, order=True)
class TopicAcl(Content):
    """One access right, in Kafka's terms. `pattern`: LITERAL, or PREFIXED for all topics whose names begin
    with `name`."""

    name: str
    pattern: str
    principal: str
    host: str
    operation: str
    permission: str

    def __str__(self) -> str:
        return (
            f"{self.permission} {self.operation} for {self.principal} from {self.host} on"
            f" {self.pattern.lower()} {self.name}"
        )


def not_shown(
    shown: Collection[TopicAcl], *, added: Collection[TopicAcl], removed: Collection[TopicAcl]
) -> str:
    """Difference between the rights that a broker shows and those after a change; "" without one."""
    missing, left = sorted(set(added).difference(shown)), sorted(set(removed).intersection(shown))
    texts = [("lacks", len(missing), missing), ("still has", len(left), left)]
    return "; ".join(f"{verb} {count}: {acls[0]}" for verb, count, acls in texts if count)


class AclAdmin(Protocol):
    """Access rights of one cluster. Every call may raise ClusterUnavailable, NoAuthorizer and AclRefused."""

    def read(self) -> frozenset[TopicAcl]:
        """All on topics."""
        ...

    def opens_topics(self) -> bool:
        """Test whether a topic without any right may be open to everyone. True where that is not known:
        brokers hide the value of `allow.everyone.if.no.acl.found`, and show only that it is set."""
        ...

    def own_operations(self, topics: Collection[str]) -> Mapping[str, frozenset[str]]:
        """Operations of `OPERATIONS` that this login may perform on each topic that exists; a super user may
        perform all."""
        ...

    def brokers_without(
        self, *, added: Collection[TopicAcl], removed: Collection[TopicAcl]
    ) -> Mapping[str, str]:
        """Brokers whose authorizers do not show a change yet, by name, and why: each decides by what it has
        itself. One that does not respond is among them. Requests that a broker had let in before may still
        be appended afterwards."""
        ...

    def others(self, topics: Mapping[str, str]) -> frozenset[str]:
        """Topics, of these with their ids, that the cluster does not have with this id."""
        ...

    def add(self, acls: Collection[TopicAcl]) -> Mapping[TopicAcl, OperatingError]:
        """The result has those that failed."""
        ...

    def remove(self, acls: Collection[TopicAcl]) -> Mapping[TopicAcl, OperatingError]:
        """The result has those that failed; one that is not there does not."""
        ...

    def close(self) -> None: ...
