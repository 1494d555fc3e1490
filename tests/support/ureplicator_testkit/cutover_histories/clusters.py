"""A cluster with two brokers, whose authorizers may lag behind what is stored."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from random import Random

from ureplicator_common.errors import OperatingError
from ureplicator_common.kafka.acls import ALLOW, LITERAL, PREFIXED, READ, WRITE, TopicAcl
from ureplicator_common.kafka.groups import TopicPartition
from ureplicator_testkit.cutover_histories.logs import Log
from ureplicator_testkit.kafka.authorizer import Authorizer
from ureplicator_testkit.kafka.memory_acls import MemoryAclAdmin
from ureplicator_testkit.kafka.memory_groups import MemoryConsumerGroups

FLEET, BOB, CAROL, DAVE = "User:fleet", "User:bob", "User:carol", "User:dave"
HOST = "10.0.0.1"
BROKERS = ("broker 1", "broker 2")
EVERYONE = "User:*"


class LaggingAcls(MemoryAclAdmin):
    """`lag`: likelihood that one broker does not take a change at once."""

    def __init__(self, dice: Random) -> None:
        super().__init__()
        self._dice = dice
        self.lag = 0.0

    def add(self, acls: Collection[TopicAcl]) -> Mapping[TopicAcl, OperatingError]:
        self._fall_behind()
        return super().add(acls)

    def remove(self, acls: Collection[TopicAcl]) -> Mapping[TopicAcl, OperatingError]:
        self._fall_behind()
        return super().remove(acls)

    def _fall_behind(self) -> None:
        if self._dice.random() < self.lag:
            self.behind.setdefault(self._dice.choice(BROKERS), frozenset(self.acls))

    def rights(self, broker: str) -> Collection[TopicAcl]:
        """Rights by which a broker decides."""
        shown = self.behind.get(broker, self.acls)
        assert not isinstance(shown, OperatingError)
        return shown


class Cluster:
    """`gateway_closed`: a fence of the kind `command` holds."""

    def __init__(self, name: str, topics: Mapping[str, int], dice: Random) -> None:
        self.name = name
        self.logs = {
            (topic, number): Log() for topic, count in topics.items() for number in range(count)
        }
        self.acls = LaggingAcls(dice)
        self.groups = MemoryConsumerGroups()
        self.gateway_closed = False

    def partitions(self, topic: str) -> int:
        return sum(name == topic for name, _ in self.logs)

    @property
    def transactions(self) -> dict[str, list[TopicPartition]]:
        """Open ones, by their writers."""
        found: dict[str, list[TopicPartition]] = {}
        for key, log in sorted(self.logs.items()):
            for writer in log.undecided:
                found.setdefault(writer, []).append(key)
        return found

    def lets_write(self, principal: str, key: TopicPartition) -> bool:
        """True if the leader of the partition accepts records of a client now."""
        return self._allows(BROKERS[key[1] % 2], principal, key[0])

    def is_open_at(self, principal: str, topic: str) -> Iterator[bool]:
        """Decision of each broker."""
        return (self._allows(broker, principal, topic) for broker in BROKERS)

    def _allows(self, broker: str, principal: str, topic: str) -> bool:
        supers = self.acls.super_users
        authorizer = Authorizer(self.acls.rights(broker), super_users=supers)
        is_held = self.gateway_closed and principal != FLEET
        return not is_held and authorizer.allows(principal, HOST, WRITE, topic)


def first_rights(dice: Random, topics: Collection[str]) -> tuple[set[TopicAcl], Collection[str]]:
    """Rights that clusters begin with, and their super users."""
    kind = dice.randrange(4)
    own = {TopicAcl("*", LITERAL, FLEET, "*", "ALL", ALLOW)}
    if kind == 0:
        named = {
            TopicAcl(topic, LITERAL, who, "*", WRITE, ALLOW)
            for topic in topics
            for who in (BOB, CAROL)
        }
        return own | named, ()
    if kind == 1:
        return own | {TopicAcl("", PREFIXED, who, "*", "ALL", ALLOW) for who in (BOB, CAROL)}, ()
    if kind == 2:
        return own | {TopicAcl(topic, LITERAL, EVERYONE, "*", "ALL", ALLOW) for topic in topics}, ()
    return {TopicAcl("*", LITERAL, EVERYONE, "*", each, ALLOW) for each in (WRITE, READ)}, (FLEET,)
