"""Rights on a topic that are withdrawn: every reason names the brokers' error and the missing right."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, closing
from pathlib import Path

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # exported without __all__
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from ureplicator_common.errors import OperatingError
from ureplicator_common.kafka import PartitionUnavailable, Position
from ureplicator_common.kafka.admin import ConfluentTopicAdmin
from ureplicator_common.kafka.client import open_client
from ureplicator_common.kafka.log_offsets import KafkaLogReader
from ureplicator_common.kafka.positions import KafkaPositionReader, PositionStore
from ureplicator_common.kafka.transactions.position_rows import readable, unreadable
from ureplicator_common.model import Delivery, RouteSettings
from ureplicator_testkit.copier.driver import StubDriver, partitions_of
from ureplicator_testkit.copier.lane import RealLane
from ureplicator_testkit.records.topics import create_topic, offsets, sample_records
from ureplicator_testkit.secured.brokers import USER, granted
from ureplicator_testkit.secured.ends import Secured, logins
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.processes import eventually
from ureplicator_worker.lifeline.messages import Add, Grant

pytestmark = pytest.mark.integration

SEEN_S = 30
ERROR = "TOPIC_AUTHORIZATION_FAILED"


@pytest.fixture
def properties(secured: Secured) -> Mapping[str, Mapping[str, str]]:
    return logins(secured, "SCRAM-SHA-512")


@pytest.fixture
def lane(secured: Secured, topic: str, fleet: str, tmp_path: Path) -> Iterator[RealLane]:
    lane = RealLane(secured.source, secured.target, topic, fleet, tmp_path)
    lane.make(1)
    yield lane
    lane.close()


@pytest.fixture
def driver(lane: RealLane, properties: Mapping[str, Mapping[str, str]]) -> Iterator[StubDriver]:
    lane.fill(sample_records(20, partitions=1, seed=1))
    driver = lane.start(1, properties=properties)
    driver.wait_caught_up(60)
    yield driver
    driver.wait_caught_up(60)
    driver.stop()
    lane.assert_equal()


def denied(
    cluster: KafkaCluster, topic: str, operation: AclOperation
) -> AbstractContextManager[None]:
    """All else stays allowed, which must be said where a list of rights exists."""
    where = (ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, f"User:{USER}", "*")
    allowed = AclBinding(*where, AclOperation.ALL, AclPermissionType.ALLOW)
    return granted(cluster, [allowed, AclBinding(*where, operation, AclPermissionType.DENY)])


def lacking(right: str, topic: str, cluster: str) -> str:
    return f"{ERROR}: the principal lacks {right} on topic {topic} at cluster {cluster}"


def wait_for_reason(driver: StubDriver, lane: RealLane, reason: str) -> None:
    """Wait for the reason while records come: a target is asked for its partitions only every few seconds,
    and takes what is sent before."""
    seeds = itertools.count(2)

    def shown() -> bool:
        lane.fill(sample_records(20, partitions=1, seed=next(seeds)))
        return any(reason in report.reason for report in driver.report.values())

    eventually(shown, SEEN_S, reason, poll_s=1.0)


@pytest.mark.parametrize("end", ["source", "target"])
def test_describe(
    driver: StubDriver,
    lane: RealLane,
    secured: Secured,
    properties: Mapping[str, Mapping[str, str]],
    topic: str,
    end: str,
) -> None:
    lacks = lacking("DESCRIBE", topic, end)
    with (
        closing(ConfluentTopicAdmin(properties[end], name=end)) as admin,
        closing(KafkaLogReader(open_client(end, properties[end]))) as logs,
        denied(getattr(secured, end), topic, AclOperation.DESCRIBE),
    ):
        eventually(lambda: topic not in admin.listing().topics, SEEN_S, "no list has it")
        assert admin.find([topic])[topic].error == lacks
        found = logs.extents({topic: [0]})[topic, 0]
        assert isinstance(found, PartitionUnavailable)
        assert lacks in str(found)
        wait_for_reason(driver, lane, f"{end}: {lacks}")


def test_describe_hides_no_position_of_another_topic(
    lane: RealLane, secured: Secured, properties: Mapping[str, Mapping[str, str]], topic: str
) -> None:
    """The coordinator refuses the topic alone: the other one starts, this one says which right is missing."""
    other = f"{topic}-other"
    create_topic(secured.target.bootstrap, other)
    with closing(open_client("target", properties["target"])) as client:
        store = PositionStore(client, group=lane.fleet, transactional_id=lane.fleet)
        store.initialise()
        store.commit({(name, 0): Position(5) for name in (topic, other)})

        def hidden() -> bool:
            return bool(unreadable(store.read({topic: [0], other: [0]})))

        with denied(secured.target, topic, AclOperation.DESCRIBE):
            eventually(hidden, SEEN_S, "the right is withdrawn")
            found = store.read({topic: [0], other: [0]})
            assert readable(found) == {(other, 0): Position(5)}
            reason = lacking("DESCRIBE", topic, "target")
            assert str(found[topic, 0]) == f"{topic}/0: {reason}"
            shown = KafkaPositionReader(client).read(lane.fleet, {topic: [0], other: [0]})
            assert unreadable(shown).keys() == {(topic, 0)}
            store.commit({(other, 0): Position(6)})
        eventually(lambda: not hidden(), SEEN_S, "the right is back")
        assert store.read({topic: [0], other: [0]})[topic, 0] == Position(5)


def test_read_at_the_source(
    driver: StubDriver, lane: RealLane, secured: Secured, topic: str
) -> None:
    with denied(secured.source, topic, AclOperation.READ):
        wait_for_reason(driver, lane, f"source: {lacking('READ', topic, 'source')}")


def test_settings(
    secured: Secured, lane: RealLane, properties: Mapping[str, Mapping[str, str]], topic: str
) -> None:
    with closing(ConfluentTopicAdmin(properties["source"], name="source")) as admin:
        with denied(secured.source, topic, AclOperation.DESCRIBE_CONFIGS):
            found = admin.settings([topic], timeout_s=SEEN_S)[topic]
            assert isinstance(found, OperatingError)
            assert lacking("DESCRIBE_CONFIGS", topic, "source") in str(found)
        with denied(secured.source, topic, AclOperation.ALTER_CONFIGS):
            refused = admin.alter_settings({topic: {"retention.ms": "1000000"}})[topic]
            assert lacking("ALTER_CONFIGS", topic, "source") in str(refused)


def test_a_position_that_is_refused_keeps_no_other_back(
    lane: RealLane, secured: Secured, properties: Mapping[str, Mapping[str, str]], topic: str
) -> None:
    """The coordinator takes the others of the request, and the producer goes on without another epoch."""
    other = f"{topic}-other"
    create_topic(secured.target.bootstrap, other)
    with closing(open_client("target", properties["target"])) as client:
        store = PositionStore(client, group=lane.fleet, transactional_id=lane.fleet)
        store.initialise()

        def commit(offset: int) -> dict[tuple[str, int], str]:
            positions = {(name, 0): Position(offset) for name in (topic, other)}
            return store.commit(positions, optional=[(topic, 0)])

        with denied(secured.target, topic, AclOperation.READ):
            eventually(lambda: bool(commit(5)), SEEN_S, "the right is withdrawn")
            assert commit(6) == {(topic, 0): lacking("READ", topic, "target")}
            assert store.commit({(topic, 0): Position(6)}, optional=[(topic, 0)])
            assert not store.commit({(other, 0): Position(7)})
        found = readable(store.read({topic: [0], other: [0]}))
        assert found[other, 0] == Position(7)
        assert found[topic, 0].offset <= 5
        eventually(lambda: not commit(8), SEEN_S, "the right is back")


def test_read_at_the_target_of_one_of_two_topics(
    lane: RealLane, secured: Secured, properties: Mapping[str, Mapping[str, str]], topic: str
) -> None:
    """Exactly once: its position is refused, or what lies behind it is not read; the other goes on."""
    forbidden = RealLane(secured.source, secured.target, f"{topic}-no", lane.fleet, lane.folder)
    forbidden.make(1)
    settings = RouteSettings(delivery=Delivery.EXACTLY_ONCE)
    driver = lane.start(
        1,
        properties=properties,
        grant=lambda part, epoch: Grant(epoch, part.topic, settings=settings),
    )
    (refused,) = added = partitions_of(forbidden.topic, 1)
    driver.send(Add(added))
    seeds = itertools.count(1)

    def fill() -> None:
        for either in (lane, forbidden):
            either.fill(sample_records(20, partitions=1, seed=next(seeds)))

    fill()
    driver.wait_caught_up(60)
    lacks = lacking("READ", forbidden.topic, "target")
    reasons = f"position refused: {lacks}", f"target: {forbidden.topic}/0: {lacks}"
    with denied(secured.target, forbidden.topic, AclOperation.READ):
        for _ in range(4):
            fill()
            eventually(lambda: refused in driver.failed, SEEN_S, "it is refused")
            assert driver.failed.pop(refused).reason in reasons
            driver.wait_caught_up(20)
            driver.send(Add(added))
    assert "positions not committed" not in driver.process.log_tail(10_000)
    (_, end) = offsets(secured.source.bootstrap, forbidden.topic)[0]

    def is_copied() -> bool:
        """A broker may refuse it for a while after the right is back."""
        if driver.failed.pop(refused, None):
            driver.send(Add(added))
        return refused in driver.report and driver.caught_up({refused: end})

    eventually(is_copied, SEEN_S, "the right is back")
    driver.wait_caught_up(20)
    driver.stop()
    for either in (lane, forbidden):
        either.assert_equal()


@pytest.mark.parametrize("operation", [AclOperation.READ, AclOperation.WRITE])
def test_what_a_lost_copier_sent_is_not_counted_without_rights_at_the_target(
    lane: RealLane,
    secured: Secured,
    properties: Mapping[str, Mapping[str, str]],
    topic: str,
    operation: AclOperation,
) -> None:
    """Exactly once: a fence writes to the topic, and a count reads it."""
    settings = RouteSettings(delivery=Delivery.EXACTLY_ONCE)

    def start(epoch: int) -> StubDriver:
        return lane.start(
            1,
            properties=properties,
            epoch=epoch,
            grant=lambda part, epoch: Grant(epoch, part.topic, settings=settings),
        )

    former = start(1)
    lane.fill(sample_records(20, partitions=1, seed=1))
    former.wait_caught_up(60)
    former.process.kill_tree()
    with denied(secured.target, topic, operation):
        driver = start(2)
        assert lacking(operation.name, topic, "target") in lane.failure(driver, 0)
    eventually(lambda: tried_again(driver, lane), SEEN_S, "the right is back", poll_s=1.0)
    lane.fill(sample_records(20, partitions=1, seed=2))
    driver.wait_caught_up(60)
    driver.stop()
    lane.assert_equal()


def tried_again(driver: StubDriver, lane: RealLane) -> bool:
    """The partition is online; one that has failed is given to the copier again."""
    if driver.failed.pop(lane.at(0), None):
        driver.send(Add(partitions_of(lane.topic, 1, epoch=2)))
    return driver.all_online()
