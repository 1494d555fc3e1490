"""The fence `acl` at a cluster: computed from its rights, raised, lifted, and watched.

Nothing is kept here: what is to be done is an `AclChange`, which the caller has written down before. Each
call may be repeated, by a successor, too.

A change is carried out in an order that takes a right from nobody but writers meanwhile. What is added comes
before what is removed. Of what is added, READ comes first, and of what is removed, it goes last: the first
right on a bare topic closes it to all that it does not name, and consumers give up when they are refused.
READ allows DESCRIBE, too, so they notice nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from ureplicator_common.cutovers import AclChange
from ureplicator_common.errors import OperatingError
from ureplicator_common.kafka.acls import (
    ALL,
    ALL_TOPICS,
    ALLOW,
    LITERAL,
    READ,
    WRITE,
    AclAdmin,
    TopicAcl,
)
from ureplicator_controller.core.cutover.acl_fence import Unfenceable, fence
from ureplicator_controller.core.cutover.topic_rights import (
    is_super_user,
    opens_bare_topics,
    rights_by_topic,
)

MAX_NAMED = 3
"""Brokers and topics that a text names."""
MAX_ASKED = 100
"""Topics with rights, beside those to be fenced, that show what this login may do."""

Change = Callable[[Collection[TopicAcl]], Mapping[TopicAcl, OperatingError]]


class AclFence:
    """The fence at one cluster, by a login of the fleet's. Belongs to one thread, as its admin does.

    Every call may raise ClusterUnavailable, NoAuthorizer and AclRefused.
    """

    def __init__(
        self,
        admin: AclAdmin,
        *,
        principal: str,
        way_back: bool,
        opens_topics: bool | None = None,
        prove: Callable[[], None] = lambda: None,
    ) -> None:
        """`principal`: of the login of `admin`, which goes on writing if there is a `way_back`.
        `opens_topics`: whether topics without rights are open to everyone; None: as the cluster shows.
        `prove` is called before each change, and raises OperatingError if none may be made."""
        self._admin = admin
        self._principal = principal
        self._way_back = way_back
        self._opens_topics = opens_topics
        self._prove = prove

    def change(self, topics: Collection[str]) -> AclChange:
        """The change after which nobody else may write these topics; an empty one while a fence holds.
        Raises Unfenceable."""
        acls = self._admin.read()
        rights = rights_by_topic(acls, topics)
        asked = {*topics, *_named_topics(acls)}
        shown = self._admin.own_operations(asked)
        spares = self._way_back and not is_super_user(acls, shown, self._principal)
        bare = sorted(topic for topic, there in rights.items() if not there)
        return fence(
            acls,
            topics,
            spared=self._principal if spares else "",
            opens_topics=bool(bare) and self._opens(acls, shown, bare),
        )

    def _opens(
        self, acls: Collection[TopicAcl], shown: Mapping[str, Collection[str]], bare: list[str]
    ) -> bool:
        """Test whether these topics without rights are open. Raises Unfenceable where that is not known:
        rights for everyone would open topics that are closed."""
        if self._opens_topics is not None:
            return self._opens_topics
        if not self._admin.opens_topics():
            return False
        opens = opens_bare_topics(acls, shown, self._principal)
        if opens is None:
            raise Unfenceable(
                f"{_listed(bare)}: no right concerns these topics, and the brokers hide whether they are"
                " open to everyone then (allow.everyone.if.no.acl.found). Give each topic a right"
                " of its own first"
            )
        return opens

    def apply(self, change: AclChange) -> None:
        """Carry out a change, as far as it is not done. All of it is sent: rights that a broker shows may not
        be those that are in force."""
        first = frozenset(acl for acl in change.added if _opens_reading(acl))
        last = frozenset(acl for acl in change.removed if _opens_reading(acl))
        self._perform(self._admin.add, first)
        self._perform(self._admin.add, change.added - first)
        self._perform(self._admin.remove, change.removed - last)
        self._perform(self._admin.remove, last)

    def _perform(self, change: Change, acls: Collection[TopicAcl]) -> None:
        """Raises the first error, with the number of those that failed."""
        if not acls:
            return
        self._prove()
        failed = change(acls)
        for acl, error in sorted(failed.items()):
            raise type(error)(f"{len(failed)} of {len(acls)} rights failed, as {acl}: {error}")

    def lagging(self, change: AclChange) -> str:
        """Brokers that do not show a change yet; "" when all do."""
        behind = self._admin.brokers_without(added=change.added, removed=change.removed)
        return _listed([f"{name}: {reason}" for name, reason in sorted(behind.items())])

    def missing(self, change: AclChange) -> AclChange:
        """The part of a change that somebody else has undone since; an empty one if nobody has. Rights that
        others gave to new writers are in `change`."""
        acls = self._admin.read()
        return AclChange(added=change.added - acls, removed=change.removed & acls)

    def closed(self, topics: Collection[str]) -> frozenset[str]:
        """Topics, of these, that this login may not write: the fence stops the fleet, too. Its principal is
        another one than was said, or somebody has changed its rights."""
        shown = self._admin.own_operations(topics)
        return frozenset(topic for topic in topics if WRITE not in shown.get(topic, ()))


def _named_topics(acls: Collection[TopicAcl]) -> list[str]:
    return sorted({acl.name for acl in acls if acl.pattern == LITERAL} - {ALL_TOPICS})[:MAX_ASKED]


def _opens_reading(acl: TopicAcl) -> bool:
    return acl.permission == ALLOW and acl.operation in (READ, ALL)


def _listed(texts: list[str]) -> str:
    more = len(texts) - MAX_NAMED
    return "; ".join(texts[:MAX_NAMED]) + (f"; {more} more" if more > 0 else "")
