"""Access rights on target topics by those on their source topics. Pure.

| right at the source                      | right at the target                                        |
|------------------------------------------|------------------------------------------------------------|
| ALLOW WRITE                              | none: only the copy writes there                           |
| ALLOW ALL                                | ALLOW READ                                                 |
| DENY for all users, but READ and DELETE  | none: it would keep the copy from writing                  |
| DENY ALL for all users                   | DENY READ and DENY DELETE                                  |
| any other                                | the same                                                   |
| on a topic                               | on its target topic                                        |
| on all topics (`*`)                      | none: the target has other topics, too                     |
| on a prefix                              | on the route's prefix and that one, if a topic of the route|
|                                          | begins with it; also on each topic that is renamed         |

No right is the first one of a topic where brokers may open topics without rights to everyone
(`allow.everyone.if.no.acl.found`): it closes the topic to all whom no right names, and to the copiers.

Only rights that the route added are removed. They are written down before they are added (`RouteAcls`): a
leader that dies in between leaves none behind. A right that the target had before belongs to its operators.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ureplicator_common.kafka.acls import (
    ALL,
    ALL_TOPICS,
    ALL_USERS,
    ALLOW,
    DELETE,
    DENY,
    LITERAL,
    PREFIXED,
    READ,
    WRITE,
    TopicAcl,
)
from ureplicator_controller.core.syncs.topics import SyncedTopic

BEHIND_ALL = "\x7f"
"""A character greater than each character of a topic's name."""
MAX_ACLS = 10_000
"""Access rights that one route adds at most: its node takes 16 bytes for each, compressed."""

Acls = frozenset[TopicAcl]


@dataclass(frozen=True, slots=True)
class AclPlan:
    """`before`, `after`: own rights to write down before anything is changed, and when all is done.
    `left`: rights that are not added, as there are too many. `withheld`: as they would be the first ones."""

    add: Acls
    remove: Acls
    before: Acls
    after: Acls
    left: Acls = frozenset()
    withheld: Acls = frozenset()

    @property
    def is_quiet(self) -> bool:
        return not (self.add or self.remove) and self.before == self.after


def wanted_acls(
    source: Collection[TopicAcl], topics: Sequence[SyncedTopic], *, prefix: str
) -> Acls:
    """Rights that the target should have for these topics; `prefix`: of the route's naming."""
    targets = {topic.source: topic.target for topic in topics}
    names = sorted(targets)
    return frozenset(
        replace(allowed, name=name, pattern=pattern)
        for acl in source
        for name, pattern in _places(acl, names, targets, prefix)
        for allowed in _reduced(acl)
    )


def _places(
    acl: TopicAcl, names: Sequence[str], targets: Mapping[str, str], prefix: str
) -> Iterator[tuple[str, str]]:
    """Names and patterns at the target that a right is for; `names`: of `targets`, in order."""
    if acl.pattern == LITERAL:
        if acl.name in targets and acl.name != ALL_TOPICS:
            yield targets[acl.name], LITERAL
    elif acl.pattern == PREFIXED:
        mine = names[bisect_left(names, acl.name) : bisect_left(names, acl.name + BEHIND_ALL)]
        renamed = [topic for topic in mine if targets[topic] != prefix + topic]
        if len(renamed) < len(mine):
            yield prefix + acl.name, PREFIXED
        for topic in renamed:
            yield targets[topic], LITERAL


def _reduced(acl: TopicAcl) -> Iterator[TopicAcl]:
    """A right without what only the copy may do, or must be able to do."""
    if acl.permission == ALLOW:
        if acl.operation != WRITE:
            yield replace(acl, operation=READ) if acl.operation == ALL else acl
    elif acl.permission == DENY:
        if acl.principal != ALL_USERS or acl.operation in (READ, DELETE):
            yield acl
        elif acl.operation == ALL:
            yield replace(acl, operation=READ)
            yield replace(acl, operation=DELETE)


def first_rights(due: Acls, target: Acls) -> Acls:
    """Rights, of those to add, on topics that the target has no right on yet."""
    covered = [right.name for right in target if right.pattern == PREFIXED]
    named = {right.name for right in target if right.pattern == LITERAL}
    if ALL_TOPICS in named:
        return frozenset()
    return frozenset(
        acl
        for acl in due
        if not (acl.pattern == LITERAL and acl.name in named)
        and not any(acl.name.startswith(prefix) for prefix in covered)
    )


def acl_plan(
    wanted: Acls,
    *,
    target: Acls,
    added: Acls,
    synced: Collection[str],
    held: Collection[str],
    withheld: Acls = frozenset(),
) -> AclPlan:
    """Changes that lead to `wanted`.

    `target`: rights that are there; `added`: those that the route wrote down as its own; `synced`, `held`:
    target topics that are synced, and those that are stopped. Rights on any others belong to operators.
    `withheld`: rights that are not added in this round.
    """
    due = sorted(wanted - target - withheld)
    fresh = [acl for acl in due if acl not in added]
    room = max(0, MAX_ACLS - len(added))
    add = frozenset(acl for acl in due if acl in added) | frozenset(fresh[:room])
    obsolete = added - wanted
    gone = frozenset(acl for acl in obsolete if _concerns(acl, synced))
    kept = frozenset(acl for acl in obsolete - gone if _concerns(acl, held))
    return AclPlan(
        add=add,
        remove=gone & target,
        before=added | add,
        after=(wanted & added) | add | kept,
        left=frozenset(fresh[room:]),
        withheld=withheld,
    )


def _concerns(acl: TopicAcl, topics: Collection[str]) -> bool:
    if acl.pattern == LITERAL:
        return acl.name in topics
    return any(topic.startswith(acl.name) for topic in topics)
