"""Offsets of groups on brokers that deny a right: nothing is written, and the reason says what to allow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # exported without __all__
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from ureplicator_common.kafka.client import open_client
from ureplicator_common.kafka.groups import CommittedOffset
from ureplicator_common.kafka.groups.requests import KafkaConsumerGroups
from ureplicator_controller.core.groups.decisions import GroupDecision, SyncState
from ureplicator_controller.core.groups.selection import GroupFilter
from ureplicator_controller.core.groups.topics import RouteTopic
from ureplicator_controller.engines.groups.survey import RouteClusters, Survey
from ureplicator_controller.engines.groups.sync import write
from ureplicator_testkit.control.memory_copied import BASE, MemoryCopied
from ureplicator_testkit.kafka.memory_groups import MemoryConsumerGroups
from ureplicator_testkit.records.consumers import group_offsets
from ureplicator_testkit.records.topics import create_topic
from ureplicator_testkit.secured.brokers import USER, granted
from ureplicator_testkit.secured.ends import Secured, logins

pytestmark = pytest.mark.integration

GROUP, TOPIC = ResourceType.GROUP, ResourceType.TOPIC


@dataclass
class Case:
    """A group at a source in memory, and the login of a fleet at a real target."""

    secured: Secured
    name: str
    """Of the topic and of the group."""
    target: KafkaConsumerGroups

    def sync(self) -> GroupDecision:
        source = MemoryConsumerGroups()
        source.add(self.name, {(self.name, 0): 10})
        clusters = RouteClusters(source=source, target=self.target, copied=MemoryCopied())
        survey = Survey(clusters, selected=GroupFilter.named([self.name]))
        found = survey.read({self.name: RouteTopic(self.name, self.name)})
        (decision,) = write(self.target, found, may_write=lambda: True)
        return decision

    def denied(self, kind: ResourceType, operation: AclOperation) -> AbstractContextManager[None]:
        """All that remains must be allowed, where a list of rights exists."""
        where = (kind, self.name, ResourcePatternType.LITERAL, f"User:{USER}", "*")
        allowed = AclBinding(*where, AclOperation.ALL, AclPermissionType.ALLOW)
        denied = AclBinding(*where, operation, AclPermissionType.DENY)
        return granted(self.secured.target, [allowed, denied])

    def written(self) -> dict[tuple[str, int], int]:
        found = group_offsets(self.secured.target.bootstrap, self.name)
        return {key: row.offset for key, row in found.items()}


@pytest.fixture
def case(secured: Secured, topic: str) -> Iterator[Case]:
    create_topic(secured.target.bootstrap, topic, partitions=1)
    properties = logins(secured, "SCRAM-SHA-512")["target"]
    with closing(KafkaConsumerGroups(open_client("target", properties))) as target:
        yield Case(secured, topic, target)


@pytest.mark.parametrize(
    ("kind", "operation", "state", "hint"),
    [
        (
            GROUP,
            AclOperation.READ,
            SyncState.REFUSED,
            "GROUP_AUTHORIZATION_FAILED: allow READ on the group",
        ),
        (
            TOPIC,
            AclOperation.READ,
            SyncState.REFUSED,
            "TOPIC_AUTHORIZATION_FAILED: allow READ on the topic",
        ),
        (
            GROUP,
            AclOperation.ALL,
            SyncState.UNKNOWN,
            "GROUP_AUTHORIZATION_FAILED: allow DESCRIBE on the group",
        ),
    ],
)
def test_offsets_that_may_not_be_written_are_named_with_the_right_that_is_missing(
    case: Case, kind: ResourceType, operation: AclOperation, state: SyncState, hint: str
) -> None:
    with case.denied(kind, operation):
        found = case.sync()
        assert (found.state, hint in found.reason) == (state, True), found.reason
        assert case.written() == {}
    assert case.sync().state is SyncState.SYNCED
    assert case.written() == {(case.name, 0): 10 + BASE}


def test_offsets_that_may_not_be_deleted_stay(case: Case) -> None:
    keys = {(case.name, 0)}
    case.target.commit({case.name: dict.fromkeys(keys, CommittedOffset(7))})

    with case.denied(GROUP, AclOperation.DELETE):
        refused = case.target.delete_offsets({case.name: keys})
        reason = "GROUP_AUTHORIZATION_FAILED: allow DELETE on the group"
        assert refused == {case.name: dict.fromkeys(keys, reason)}
    assert case.written() == {(case.name, 0): 7}
    assert case.target.delete_offsets({case.name: keys}) == {case.name: {}}
    assert case.written() == {}
