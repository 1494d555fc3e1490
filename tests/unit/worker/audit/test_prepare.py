"""Preparation of an audit, out of settings, logs and positions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ureplicator_common.errors import PermanentError
from ureplicator_common.kafka import Position
from ureplicator_common.kafka.provenance import Provenance, SameOffsets
from ureplicator_common.model import Delivery, HandlerSettings, Route, RouteSettings, position_group
from ureplicator_testkit.kafka.clients import (
    MemoryLogReader,
    MemoryPositionReader,
    MemoryTopicAdmin,
)
from ureplicator_worker.audit.core.claims import UNCLAIMED, Claim
from ureplicator_worker.audit.prepare import MAX_HELD, NO_POSITION, Bound, Wanted, prepare
from ureplicator_worker.audit.result import AuditOptions, AuditRequest, PartitionRange

ROUTE = Route("a", "b")
WANTED = Wanted("fleet", ROUTE, "orders", RouteSettings(prefix="copy-"))
COMPACTED = {"cleanup.policy": "compact,delete"}


class Clusters:
    """Two clusters with a topic of two partitions, its copy, and the positions 70 and none."""

    def __init__(self) -> None:
        self.source, self.target = MemoryTopicAdmin(), MemoryTopicAdmin()
        self.source.put("orders", 2)
        self.target.put("copy-orders", 2)
        self.logs, self.positions = MemoryLogReader(), MemoryPositionReader()
        self.copies = MemoryLogReader()
        self.logs.hold("orders", 1, 0, 0)
        self.positions.put(position_group(fleet="fleet", route=ROUTE), "copy-orders", 0, 70)

    def prepare(self, wanted: Wanted = WANTED) -> AuditRequest:
        return prepare(
            wanted,
            AuditOptions(),
            source=self.source,
            target=self.target,
            logs=self.logs,
            copies=self.copies,
            positions=self.positions,
            pause=self.pause,
        )

    def pause(self, seconds: float) -> None:
        """The marker arrives."""
        log = self.copies.logs["copy-orders", 0]
        log.end, log.open_from = log.end + 1, None


def test_a_position_that_is_not_shown() -> None:
    clusters = Clusters()
    group = position_group(fleet="fleet", route=ROUTE)
    clusters.positions.groups[group].unreadable["copy-orders"] = "TOPIC_AUTHORIZATION_FAILED"
    first, second = clusters.prepare().partitions
    assert (first.end, first.uncompared) == (0, "target: copy-orders/0: TOPIC_AUTHORIZATION_FAILED")
    assert second.uncompared == "target: copy-orders/1: TOPIC_AUTHORIZATION_FAILED"


def test_up_to_the_positions_under_the_name_of_the_copy() -> None:
    clusters = Clusters()
    request = clusters.prepare()
    assert (request.route, request.topic, request.target_topic) == ("a.b", "orders", "copy-orders")
    assert request.partitions == (PartitionRange(0, 70), PartitionRange(1, 0))
    assert request.not_comparable == ""
    ids = clusters.source.find(["orders"]), clusters.target.find(["copy-orders"])
    assert (request.source_topic_id, request.target_topic_id) == (
        ids[0]["orders"].topic_id,
        ids[1]["copy-orders"].topic_id,
    )
    assert request.source_topic_id


def test_a_topic_keeps_the_name_that_it_was_whitelisted_with() -> None:
    clusters = Clusters()
    request = clusters.prepare(
        replace(WANTED, settings=RouteSettings(prefix="new-"), target_topic="copy-orders")
    )
    assert (request.target_topic, request.partitions[0].end) == ("copy-orders", 70)


def test_it_waits_until_the_copy_can_be_read_up_to_the_position() -> None:
    clusters = Clusters()
    same = SameOffsets(5, 1)
    written = Provenance("A", "s", "t", "w", 0, 1, target_end=70, markers=1, same=same)
    ledger = clusters.positions.groups[position_group(fleet="fleet", route=ROUTE)]
    ledger.positions["copy-orders", 0] = Position(70, metadata=written.encode())
    clusters.copies.hold("copy-orders", 0, 0, 70)
    clusters.copies.logs["copy-orders", 0].open_from = 20
    first, second = clusters.prepare().partitions
    assert (first.end, first.claim, second.claim) == (70, Claim(5, 1, 70), UNCLAIMED)
    assert clusters.copies.logs["copy-orders", 0].open_from is None


def test_records_without_a_position_are_not_compared() -> None:
    clusters = Clusters()
    clusters.logs.hold("orders", 1, 5, 9)
    assert [partition.uncompared for partition in clusters.prepare().partitions] == [
        "",
        NO_POSITION,
    ]
    clusters.logs.hold("orders", 1, 9, 9)
    assert [partition.uncompared for partition in clusters.prepare().partitions] == ["", ""]


def test_records_of_an_open_transaction_are_named_as_not_compared() -> None:
    clusters = Clusters()
    assert clusters.prepare().notes == ()
    clusters.logs.hold("orders", 0, 0, 5_071)
    clusters.logs.logs["orders", 0].open_from = 70
    assert clusters.prepare().notes == (
        "partition 0: 5001 offsets behind 70 are held by an open transaction at the source: not compared",
    )
    for number in range(2, 24):
        clusters.logs.hold("orders", number, 0, 9)
        clusters.logs.logs["orders", number].open_from = 5
    clusters.source.put("orders", 24)
    clusters.positions.put(position_group(fleet="fleet", route=ROUTE), "copy-orders", 23, 5)
    assert clusters.prepare().notes[MAX_HELD:] == (
        "3 more partitions are held by open transactions",
    )


def test_bounds_are_offsets_within_the_copy() -> None:
    bounded = replace(WANTED, numbers=[0], first=Bound(offset=10), end=Bound(offset=90))
    assert Clusters().prepare(bounded).partitions == (PartitionRange(0, 70, 10),)
    earlier = replace(bounded, end=Bound(offset=30))
    assert Clusters().prepare(earlier).partitions == (PartitionRange(0, 30, 10),)


def test_settings_of_route_and_topics_become_options() -> None:
    clusters = Clusters()
    clusters.source.put("orders", 2, configs=COMPACTED)
    settings = replace(WANTED.settings, delivery=Delivery.EXACTLY_ONCE, start="latest")
    options = clusters.prepare(replace(WANTED, settings=settings)).options
    assert (options.source_compacted, options.target_compacted) == (True, False)
    assert (options.delivery, options.start) == (Delivery.EXACTLY_ONCE, "latest")
    assert options.timestamps


def test_what_is_not_comparable_has_its_reason() -> None:
    handlers = (HandlerSettings("ord.*", "package.module:factory"),)
    settings = replace(WANTED.settings, handlers=handlers)
    request = Clusters().prepare(replace(WANTED, settings=settings))
    assert "package.module:factory" in request.not_comparable

    clusters = Clusters()
    stamped = {"message.timestamp.type": "LogAppendTime"}
    clusters.target.put("copy-orders", 2, configs=stamped)
    assert not clusters.prepare().options.timestamps
    assert clusters.prepare().not_comparable == ""
    clusters.target.put("copy-orders", 2, configs={**stamped, **COMPACTED})
    assert "compacted" in clusters.prepare().not_comparable


def test_what_does_not_exist_is_refused() -> None:
    clusters = Clusters()
    with pytest.raises(PermanentError, match="orders has no partition 2: it has 2"):
        clusters.prepare(replace(WANTED, numbers=[2]))
    clusters.target.remove("copy-orders")
    with pytest.raises(PermanentError, match="copy-orders at b: there is no such topic"):
        clusters.prepare()
