"""The fence `acl`: access rights after which nobody may write some topics, or the fleet alone. Pure.

Every other decision of the brokers stays what it was, on these topics and on all others, those to come too:
each right that is added or removed is one on a topic by its name.

| writers at the cluster                       | the fence, if the fleet goes on writing               |
|----------------------------------------------|-------------------------------------------------------|
| a principal, by any right                    | DENY WRITE for it                                     |
| everyone (`User:*`), by the topic's name     | that right is removed, the fleet gets WRITE and       |
|                                              | everyone the other operations, from the same hosts    |
| everyone, by a prefix or on all topics       | none: `Unfenceable`                                   |
| everyone, as the topic is bare and open      | the fleet gets WRITE, everyone the other operations   |
| none but the fleet                           | nothing                                               |

If the fleet has no right to write, it gets one: the way back needs it. If a right denies it, `Unfenceable`.

Without a way back, and where the fleet's login is a super user, whom no right stops, the fence is one
DENY WRITE for everyone on each topic (and ALLOW ALL for everyone on one that is bare and open, which a first
right would close to readers). It also holds against rights that are given later.

What no fence of rights holds: super users, requests that a broker has let in before, and the end of
transactions that are open, which adds control records.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from ureplicator_common.cutovers import AclChange
from ureplicator_common.errors import PermanentError
from ureplicator_common.kafka.acls import (
    ALL,
    ALL_HOSTS,
    ALL_TOPICS,
    ALL_USERS,
    ALLOW,
    DENY,
    DESCRIBE,
    LITERAL,
    OPERATIONS,
    WRITE,
    TopicAcl,
)
from ureplicator_controller.core.cutover.topic_rights import (
    Rights,
    denied_hosts,
    grants,
    may,
    rights_by_topic,
)

NOT_HELD = (
    "no right stops super users of the brokers (super.users), and clusters do not show who they are:"
    " see that none of them writes"
)
"""What a plan with this fence has to say."""
MAX_NAMED = 3
"""Rights that a refusal names."""


class Unfenceable(PermanentError):
    """The rights of the cluster allow no fence that spares the fleet."""


def fence(
    acls: Collection[TopicAcl], topics: Collection[str], *, spared: str, opens_topics: bool
) -> AclChange:
    """Change after which nobody but `spared` may write these topics; "": nobody at all, but super users.

    `acls`: all on topics; `opens_topics`: those that no right concerns are open to everyone. The change of
    rights that hold a fence already is empty. Raises Unfenceable.
    """
    rights = rights_by_topic(acls, topics)
    if spared:
        _require_fenceable(rights.values(), spared)
    removed = {acl for there in rights.values() for acl in _for_everyone(there) if spared}
    added = {
        acl
        for topic, there in rights.items()
        for acl in (
            *(_opened(topic, spared) if opens_topics and not there else ()),
            *(_sparing(topic, there, spared) if spared else _for_nobody(topic, there)),
        )
    }
    return AclChange(added=frozenset(added.difference(acls)), removed=frozenset(removed))


def _for_everyone(rights: Rights) -> frozenset[TopicAcl]:
    """Rights by which everyone may write, unless a denial wins."""
    return frozenset(acl for acl in rights if grants(acl, WRITE) and acl.principal == ALL_USERS)


def _require_fenceable(all_rights: Collection[Rights], spared: str) -> None:
    """Raises Unfenceable."""
    denials = {
        acl
        for rights in all_rights
        for acl in rights
        if ALL_HOSTS in denied_hosts(frozenset({acl}), WRITE, spared)
    }
    if denials:
        raise Unfenceable(
            f"{spared} may not write, by {_named(denials)}: the way back needs it. Remove that, or plan"
            " without a way back"
        )
    wide = {
        acl for rights in all_rights for acl in _for_everyone(rights) if not _is_of_one_topic(acl)
    }
    if wide:
        raise Unfenceable(
            f"everyone may write by {_named(wide)}: to deny it to everyone would stop the fleet, too. Give"
            " the writers rights of their own in its place, make the fleet's principal a super user, plan"
            " without a way back, or choose another fence"
        )


def _is_of_one_topic(acl: TopicAcl) -> bool:
    return acl.pattern == LITERAL and acl.name != ALL_TOPICS


def _named(acls: Collection[TopicAcl]) -> str:
    named = ", ".join(map(str, sorted(acls)[:MAX_NAMED]))
    more = len(acls) - MAX_NAMED
    return f"{named} and {more} more" if more > 0 else named


def _sparing(topic: str, rights: Rights, spared: str) -> Iterator[TopicAcl]:
    """Rights to add where `spared` is to write, and nobody else."""
    for acl in _for_everyone(rights):
        yield replace(acl, principal=spared, operation=WRITE)
        kept = OPERATIONS - {WRITE} if acl.operation == ALL else {DESCRIBE}
        yield from (replace(acl, operation=operation) for operation in kept)
    for principal in {acl.principal for acl in rights if grants(acl, WRITE)} - {spared, ALL_USERS}:
        yield _right(topic, principal, WRITE, DENY)
    if not may(rights, WRITE, spared):
        yield _right(topic, spared, WRITE)


def _for_nobody(topic: str, rights: Rights) -> Iterator[TopicAcl]:
    if ALL_HOSTS not in denied_hosts(rights, WRITE, ALL_USERS):
        yield _right(topic, ALL_USERS, WRITE, DENY)


def _opened(topic: str, spared: str) -> Iterator[TopicAcl]:
    """Rights that leave a bare topic open to everyone when it gets its first one."""
    for operation in OPERATIONS - {WRITE} if spared else {ALL}:
        yield _right(topic, ALL_USERS, operation)


def _right(topic: str, principal: str, operation: str, permission: str = ALLOW) -> TopicAcl:
    return TopicAcl(topic, LITERAL, principal, ALL_HOSTS, operation, permission)
