"""Access rights of a cluster in memory that can fail."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from ureplicator_common.errors import OperatingError
from ureplicator_common.kafka.acls import DESCRIBE, TopicAcl, not_shown
from ureplicator_testkit.kafka.authorizer import Authorizer


class MemoryAclAdmin:
    """`failure`: raised by every request; `refused`: rights that are neither added nor removed, and why.
    `opens`: whether topics without rights may be open to everyone. `ids`: of its topics; None: as asked for.
    `reading` is called when rights are read; `changes`: what was added (+) and removed (-), in order.
    `behind`: brokers that show other rights, or do not respond; `login`: whose operations are shown, `host`:
    from where; `super_users`: of the brokers."""

    def __init__(self) -> None:
        self.acls: set[TopicAcl] = set()
        self.failure: OperatingError | None = None
        self.refused: dict[TopicAcl, OperatingError] = {}
        self.reading: Callable[[], None] = lambda: None
        self.opens = False
        self.ids: dict[str, str] | None = None
        self.changes: list[tuple[str, TopicAcl]] = []
        self.behind: dict[str, Collection[TopicAcl] | OperatingError] = {}
        self.login, self.host = "User:fleet", "127.0.0.1"
        self.super_users: Collection[str] = ()

    def read(self) -> frozenset[TopicAcl]:
        self._request()
        found = frozenset(self.acls)
        self.reading()
        return found

    def opens_topics(self) -> bool:
        self._request()
        return self.opens

    def own_operations(self, topics: Collection[str]) -> Mapping[str, frozenset[str]]:
        self._request()
        authorizer = Authorizer(self.acls, opens_topics=self.opens, super_users=self.super_users)
        shown = {topic: authorizer.operations(self.login, self.host, topic) for topic in topics}
        return {name: found if DESCRIBE in found else frozenset() for name, found in shown.items()}

    def brokers_without(
        self, *, added: Collection[TopicAcl], removed: Collection[TopicAcl]
    ) -> Mapping[str, str]:
        self._request()
        brokers = {"broker 1": self.acls, **self.behind}
        found = {
            name: str(shown)
            if isinstance(shown, OperatingError)
            else not_shown(shown, added=added, removed=removed)
            for name, shown in brokers.items()
        }
        return {name: reason for name, reason in found.items() if reason}

    def others(self, topics: Mapping[str, str]) -> frozenset[str]:
        self._request()
        there = topics if self.ids is None else self.ids
        return frozenset(name for name, id in topics.items() if there.get(name) != id)

    def add(self, acls: Collection[TopicAcl]) -> Mapping[TopicAcl, OperatingError]:
        return self._change("+", acls, self.acls.add)

    def remove(self, acls: Collection[TopicAcl]) -> Mapping[TopicAcl, OperatingError]:
        return self._change("-", acls, self.acls.discard)

    def close(self) -> None: ...

    def _change(
        self, sign: str, acls: Collection[TopicAcl], change: Callable[[TopicAcl], None]
    ) -> Mapping[TopicAcl, OperatingError]:
        self._request()
        for acl in acls:
            if acl not in self.refused:
                change(acl)
                self.changes.append((sign, acl))
        return {acl: self.refused[acl] for acl in acls if acl in self.refused}

    def _request(self) -> None:
        if self.failure is not None:
            raise self.failure
