"""Rows of the offset map in transactions, against a cluster that follows a script."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_common.kafka.client import ClusterView, Leader
from ureplicator_common.kafka.errors import ErrorCode
from ureplicator_common.kafka.map_log import MapRefused
from ureplicator_common.kafka.map_log.writing import AWAY_S, REFUSED_S, REQUIRED_S, KafkaMapLog
from ureplicator_common.kafka.positions import PositionStore
from ureplicator_common.offset_map.codec import Row
from ureplicator_testkit.kafka.coordinator import HERE, LOST, Coordinator
from ureplicator_testkit.records import batches

MAP = "ureplicator-main-a.b-offset-map"
ROWS = [Row(b"key", b"value")]
LED = ClusterView(
    "cluster", {1: HERE}, {(MAP, 0): Leader(1, 0)}, {MAP: "00000000-0000-0000-0000-000000000007"}
)
LEADERLESS = replace(LED, leaders={(MAP, 0): Leader(-1, 0)})


class Writer:
    def __init__(self, view: ClusterView = LED, **scripts: list[object]) -> None:
        self.client = Coordinator(**scripts)
        self.client.view_found = view
        self.store = PositionStore(self.client, group="g", transactional_id="own")
        self.store.initialise()
        self.client.requests.clear()
        self.log = KafkaMapLog(self.client, MAP, wall_ms=lambda: 0)

    def write(self) -> None:
        self.log.write(ROWS, self.store, replication_factor=3)


def test_a_leader_that_is_known_gets_nothing_but_the_rows() -> None:
    writer = Writer()
    writer.write()
    first = ["ListOffsets", "DescribeConfigs", "AddPartitionsToTxn", "Produce"]
    assert writer.client.requests == first
    writer.write()
    assert writer.client.requests[4:] == ["AddPartitionsToTxn", "Produce"]


def test_each_epoch_of_the_producer_begins_its_sequences() -> None:
    """A broker takes no other first sequence under a new epoch (KIP-890 raises it with each transaction)."""
    writer = Writer()
    for epoch in (1, 1, 2, 2):
        writer.store._producer = replace(writer.store.producer, epoch=epoch)
        writer.write()
    fields = ("producer_epoch", "base_sequence")
    found = [tuple(batches.field(data, name) for name in fields) for data in writer.client.produced]
    assert found == [(1, 0), (1, 1), (2, 0), (2, 1)]


def test_a_map_without_a_leader_takes_no_part() -> None:
    """A coordinator ends no transaction with a partition that has no leader."""
    writer = Writer(LEADERLESS)
    with pytest.raises(MapRefused):
        writer.write()
    assert writer.client.requests == []
    assert writer.log.is_refused()
    writer.client.view_found = LED
    writer.client.clock.advance(AWAY_S)
    assert not writer.log.is_refused()
    writer.write()


def test_a_leader_that_has_closed_its_connections_takes_no_part() -> None:
    writer = Writer()
    writer.write()
    writer.client.closed = True
    with pytest.raises(MapRefused):
        writer.write()
    assert writer.client.requests[4:] == []
    writer.client.clock.advance(AWAY_S)
    with pytest.raises(MapRefused):
        writer.write()
    assert writer.client.requests[4:] == []


def test_after_a_lost_response_the_next_commits_do_without() -> None:
    """The first transaction is aborted, since its outcome is unknown."""
    writer = Writer(Produce=[LOST])
    with pytest.raises(ClusterUnavailable) as caught:
        writer.write()
    assert not isinstance(caught.value, MapRefused)
    with pytest.raises(MapRefused):
        writer.write()


def test_a_coordinator_that_is_away_is_no_fault_of_the_map() -> None:
    writer = Writer(AddPartitionsToTxn=[LOST])
    with pytest.raises(ClusterUnavailable):
        writer.write()
    assert not writer.log.is_refused()


def test_a_refusal_is_not_repeated_soon() -> None:
    writer = Writer(Produce=[ErrorCode.TOPIC_AUTHORIZATION_FAILED])
    with pytest.raises(MapRefused):
        writer.write()
    writer.client.clock.advance(REFUSED_S - 1)
    assert writer.log.is_refused()


def test_the_topic_gets_the_replicas_of_the_route() -> None:
    writer = Writer(ClusterView("cluster", {1: HERE}, {}, {}, frozenset({MAP})))
    with pytest.raises(MapRefused):
        writer.write()
    assert writer.client.created == [(MAP, 3)]


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.OFFSET_NOT_AVAILABLE])
def test_a_leader_that_responds_with_an_error_takes_no_part(code: ErrorCode) -> None:
    """It has just been elected, or is one no more."""
    writer = Writer(ListOffsets=[code])
    with pytest.raises(MapRefused, match=code.name):
        writer.write()
    assert writer.client.requests == ["ListOffsets"]
    assert writer.log.is_refused()
    writer.client.clock.advance(AWAY_S)
    writer.write()


def test_a_map_with_too_few_replicas_in_sync_takes_no_part() -> None:
    """No marker could be written either: commits and aborts would wait for the replicas."""
    writer = Writer()
    writer.client.replicas, writer.client.in_sync, writer.client.min_in_sync = 3, 2, 2
    writer.write()
    writer.client.in_sync = 1
    writer.client.requests.clear()
    with pytest.raises(MapRefused, match=r"1 of 3 replicas are in sync, .* requires 2"):
        writer.write()
    assert "AddPartitionsToTxn" not in writer.client.requests
    writer.client.in_sync = 2
    writer.client.clock.advance(AWAY_S)
    writer.write()


def test_more_replicas_required_than_there_are_count_as_all() -> None:
    writer = Writer()
    writer.client.min_in_sync = 2
    writer.write()


def test_a_requirement_that_is_raised_is_known_soon() -> None:
    writer = Writer()
    writer.client.replicas, writer.client.in_sync = 3, 2
    writer.write()
    writer.client.min_in_sync = 3
    writer.client.clock.advance(REQUIRED_S)
    with pytest.raises(MapRefused):
        writer.write()


def test_a_requirement_that_is_not_shown_costs_one_transaction_each_time() -> None:
    """The rows show it then; the next commits do without the map."""
    writer = Writer(DescribeConfigs=[ErrorCode.TOPIC_AUTHORIZATION_FAILED])
    writer.client.replicas, writer.client.in_sync, writer.client.min_in_sync = 3, 1, 2
    with pytest.raises(ClusterUnavailable, match="NOT_ENOUGH_REPLICAS") as caught:
        writer.write()
    assert not isinstance(caught.value, MapRefused)
    with pytest.raises(MapRefused):
        writer.write()
