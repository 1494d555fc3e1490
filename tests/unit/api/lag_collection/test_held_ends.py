"""Partitions whose end an open transaction holds, as REST and Prometheus show them."""

from __future__ import annotations

import pytest

from ureplicator_common.kafka import OpenTransaction, PartitionUnavailable
from ureplicator_common.model import PartitionState, position_group
from ureplicator_common.znode_contents import SyncKind, SyncReport, TopicIntent
from ureplicator_common.znodes.routes import encode_sync
from ureplicator_controller.api.lag_collection.cache import FRESH_S
from ureplicator_controller.core.reporting.lag import HELD_LONG_S, MAX_HOLDER_READS
from ureplicator_testkit.control.rest_fixture import ROUTE, RestFixture

GROUP = position_group(fleet="test", route=ROUTE)


@pytest.fixture
def held(rest: RestFixture) -> RestFixture:
    """Partition 0 of orders is copied to its stable end; 5,001 offsets lie behind it."""
    rest.put_intent("orders", TopicIntent(1, 1, target_topic="orders"))
    logs = rest.logs["source"]
    logs.hold("orders", 0, 0, 5_011)
    logs.logs["orders", 0].open_from = 10
    rest.positions.put(GROUP, "orders", 0, 10)
    return rest


def shown_later(rest: RestFixture) -> dict[str, object]:
    """Figures after a minute: the second collection in it has asked for the transaction."""
    rest.call("GET", "/offset/orders/0")
    for _ in range(2):
        rest.clock.advance(max(HELD_LONG_S, FRESH_S))
        found = dict(rest.call("GET", "/offset/orders/0").get_json())
    return found


def test_records_behind_an_open_transaction_are_shown_beside_the_lag(held: RestFixture) -> None:
    shown = held.call("GET", "/offset/orders/0").get_json()
    assert (shown["lagRecords"], shown["logEnd"], shown["heldRecords"]) == (0, 10, 5_001)
    assert "reason" not in shown
    text = held.call("GET", "/metrics").text
    assert (
        'ureplicator_held_records{fleet="test",route="source.target",topic="orders"} 5001.0' in text
    )


def test_a_transaction_that_stays_open_is_named(held: RestFixture) -> None:
    began_ms = held.clock.wall_ms() - 900_000
    held.logs["source"].transactions["orders", 0] = OpenTransaction(
        4_000, 10, "billing-7", "Ongoing", began_ms
    )
    shown = shown_later(held)
    assert shown["heldSeconds"] == 2 * HELD_LONG_S
    reason = str(shown["reason"])
    assert reason.startswith("5001 offsets behind 10 are held by transaction billing-7")
    assert "producer 4000" in reason
    assert "since offset 10" in reason
    assert "s ago" in reason


def test_a_cluster_that_does_not_name_it_leaves_the_figures(held: RestFixture) -> None:
    held.logs["source"].transactions["orders", 0] = PartitionUnavailable("brokers are too old")
    shown = shown_later(held)
    assert shown["heldRecords"] == 5_001
    assert "not known: brokers are too old" in str(shown["reason"])


def test_an_id_that_is_not_shown(held: RestFixture) -> None:
    held.logs["source"].transactions["orders", 0] = OpenTransaction(4_000, 10)
    assert "of producer 4000 since offset 10" in str(shown_later(held)["reason"])


def test_short_transactions_are_not_asked_for_and_are_no_reason(held: RestFixture) -> None:
    logs = held.logs["source"]
    logs.transactions["orders", 0] = OpenTransaction(4_000, 10)
    for end in range(10, 20):
        logs.logs["orders", 0].open_from = end
        held.positions.put(GROUP, "orders", 0, end)
        held.clock.advance(HELD_LONG_S / 2)
        shown = held.call("GET", "/offset/orders/0").get_json()
        assert shown["heldSeconds"] == 0
        assert "reason" not in shown


def test_questions_are_bounded(rest: RestFixture) -> None:
    count = 3 * MAX_HOLDER_READS
    rest.put_intent("orders", TopicIntent(count, count, target_topic="orders"))
    logs = rest.logs["source"]
    for number in range(count):
        logs.hold("orders", number, 0, 20)
        logs.logs["orders", number].open_from = 10
        logs.transactions["orders", number] = OpenTransaction(4_000, 10)
        rest.positions.put(GROUP, "orders", number, 10)
    rest.call("GET", "/offset")
    rest.clock.advance(HELD_LONG_S)
    for asked in (1, 2, 3):
        progress = rest.call("GET", "/topics/orders").get_json()["progress"].values()
        named = sum("producer 4000" in partition.get("reason", "") for partition in progress)
        assert named == asked * MAX_HOLDER_READS
        rest.clock.advance(FRESH_S)


def test_records_that_are_held_for_long_are_a_mismatch(held: RestFixture) -> None:
    held.add_worker("w1")
    held.place("orders", {0: "w1"})
    held.put_states("w1", "orders", {0: PartitionState.ONLINE})
    held.logs["source"].transactions["orders", 0] = OpenTransaction(4_000, 10, "billing-7")
    assert mismatches(held) == []
    shown_later(held)
    (found,) = mismatches(held)
    assert found["ideal"] == found["actual"] == {"w1": "ONLINE"}
    reason = str(found["reason"])
    assert reason.startswith("5001 offsets behind 10 are held by transaction billing-7")
    (of_topic,) = held.call("GET", "/topics/orders").get_json()["mismatches"]
    assert of_topic["reason"] == reason
    held.logs["source"].logs["orders", 0].open_from = None
    held.clock.advance(FRESH_S)
    assert mismatches(held) == []


def test_what_is_not_copied_for_another_reason_is_one_mismatch(held: RestFixture) -> None:
    shown_later(held)
    (found,) = mismatches(held)
    assert found["reason"] == "not placed yet"


def test_what_is_held_at_a_target_that_does_harm_has_both_reasons(held: RestFixture) -> None:
    held.add_worker("w1")
    held.place("orders", {0: "w1"})
    held.put_states("w1", "orders", {0: PartitionState.ONLINE})
    report = SyncReport(1, {"harmful": 1}, harm={"orders": "retention.ms is 7"})
    held.put(held.paths.sync(SyncKind.CONFIGS, ROUTE), encode_sync(report))
    shown_later(held)
    (found,) = mismatches(held)
    assert str(found["reason"]).startswith("5001 offsets behind 10 are held by ")
    assert str(found["reason"]).endswith("; retention.ms is 7")


def mismatches(rest: RestFixture) -> list[dict[str, object]]:
    return list(rest.call("GET", "/validation").get_json()["mismatches"])
