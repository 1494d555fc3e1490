"""Who may do what with a topic, by the access rights of a cluster. Pure.

A right concerns a topic by its name, by a prefix of it, or as one on all topics (`*`). A denial wins over all
that allows. READ, WRITE, DELETE and ALTER allow DESCRIBE, too, and ALTER_CONFIGS allows DESCRIBE_CONFIGS.
A topic that no right concerns is *bare*: open to everyone where the brokers have
`allow.everyone.if.no.acl.found`, else to nobody.

Super users of the brokers may do everything. Clusters do not show who they are, and hide whether bare topics
are open. What this login may do shows both: a super user may do all with each topic, so one who may do less
with any topic is none, and one who may do more than the rights say is one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping

from ureplicator_common.kafka.acls import (
    ALL,
    ALL_HOSTS,
    ALL_TOPICS,
    ALL_USERS,
    ALLOW,
    ALTER,
    ALTER_CONFIGS,
    DELETE,
    DENY,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    OPERATIONS,
    PREFIXED,
    READ,
    WRITE,
    TopicAcl,
)

IMPLIED_BY: Mapping[str, frozenset[str]] = {
    DESCRIBE: frozenset({READ, WRITE, DELETE, ALTER}),
    DESCRIBE_CONFIGS: frozenset({ALTER_CONFIGS}),
}
Rights = frozenset[TopicAcl]
"""Those that concern one topic."""


def rights_by_topic(acls: Collection[TopicAcl], topics: Collection[str]) -> dict[str, Rights]:
    named: defaultdict[str, list[TopicAcl]] = defaultdict(list)
    prefixed: list[TopicAcl] = []
    for acl in acls:
        (prefixed if acl.pattern == PREFIXED else named[acl.name]).append(acl)
    everywhere = named[ALL_TOPICS]
    return {
        topic: frozenset(
            (*named[topic], *everywhere, *(acl for acl in prefixed if topic.startswith(acl.name)))
        )
        for topic in topics
    }


def may(rights: Rights, operation: str, principal: str, *, opens_topics: bool = False) -> bool:
    """Test whether a principal may perform the operation from at least one host. `ALL_USERS`: whether one may
    that no right names. `opens_topics`: bare topics are open."""
    if not rights:
        return opens_topics
    denied = denied_hosts(rights, operation, principal)
    return ALL_HOSTS not in denied and any(
        acl.host not in denied
        for acl in rights
        if grants(acl, operation) and acl.principal in (principal, ALL_USERS)
    )


def grants(acl: TopicAcl, operation: str) -> bool:
    granting = {operation, ALL} | IMPLIED_BY.get(operation, frozenset())
    return acl.permission == ALLOW and acl.operation in granting


def denied_hosts(rights: Rights, operation: str, principal: str) -> frozenset[str]:
    """Hosts from which a principal may not perform the operation, whatever else is allowed."""
    return frozenset(
        acl.host
        for acl in rights
        if acl.permission == DENY
        and acl.operation in (operation, ALL)
        and acl.principal in (principal, ALL_USERS)
    )


def _who_may(
    operation: str, acls: Collection[TopicAcl], topic: str, opens_topics: bool
) -> frozenset[str]:
    rights = rights_by_topic(acls, [topic])[topic]
    named = {acl.principal for acl in rights} | {ALL_USERS}
    return frozenset(
        principal
        for principal in named
        if may(rights, operation, principal, opens_topics=opens_topics)
    )


def writers(acls: Collection[TopicAcl], topic: str, *, opens_topics: bool) -> frozenset[str]:
    """Principals that may write a topic from at least one host: those that a right names, and `User:*` for
    all others."""
    return _who_may(WRITE, acls, topic, opens_topics)


def readers(acls: Collection[TopicAcl], topic: str, *, opens_topics: bool) -> frozenset[str]:
    """Principals that may read a topic; see `writers`."""
    return _who_may(READ, acls, topic, opens_topics)


def without(
    principals: Collection[str],
    operation: str,
    acls: Collection[TopicAcl],
    topic: str,
    *,
    opens_topics: bool,
) -> frozenset[str]:
    """Principals, of these, that may not perform the operation on a topic: as those that write at the source
    and may not at the target. Rights of the target may name none of them, as it lets everyone write."""
    rights = rights_by_topic(acls, [topic])[topic]
    return frozenset(
        principal
        for principal in principals
        if not may(rights, operation, principal, opens_topics=opens_topics)
    )


def is_super_user(
    acls: Collection[TopicAcl], shown: Mapping[str, Collection[str]], principal: str
) -> bool | None:
    """Test whether a login is a super user, by the operations that it may perform on some topics (`shown`).
    None: they do not tell."""
    if any(OPERATIONS.difference(operations) for operations in shown.values()):
        return False
    return (
        any(
            rights and not all(may(rights, operation, principal) for operation in OPERATIONS)
            for rights in rights_by_topic(acls, shown).values()
        )
        or None
    )


def opens_bare_topics(
    acls: Collection[TopicAcl], shown: Mapping[str, Collection[str]], principal: str
) -> bool | None:
    """Test whether topics without rights are open, by what a login may do with some. None: not known."""
    bare = [topic for topic, rights in rights_by_topic(acls, shown).items() if not rights]
    if any(OPERATIONS.difference(shown[topic]) for topic in bare):
        return False
    return True if bare and is_super_user(acls, shown, principal) is False else None
