"""Waiting for the markers of a transaction, against a coordinator that follows a script."""

from typing import Any

import pytest

from ureplicator_common.kafka import Position
from ureplicator_common.kafka.errors import ErrorCode
from ureplicator_common.kafka.features import DESCRIBE_TRANSACTIONS
from ureplicator_common.kafka.positions import PositionStore
from ureplicator_common.kafka.transactions.markers import LONGEST_S, LOOK_EVERY_S, WORTH_S
from ureplicator_testkit.kafka.coordinator import LOST, Coordinator

PREPARED = "PrepareCommit"


def committed(**scripts: list[Any]) -> tuple[PositionStore, Coordinator]:
    """A store after a commit, and its coordinator."""
    client = Coordinator(**scripts)
    store = PositionStore(client, group="g", transactional_id="own")
    store.initialise()
    store.commit({("t", 0): Position(5)})
    client.requests.clear()
    return store, client


def test_it_looks_each_millisecond_until_they_are_written() -> None:
    store, client = committed(DescribeTransactions=[PREPARED, PREPARED, "CompleteCommit"])
    began_s = client.now_s()
    store.wait_for_markers()
    assert client.requests == ["DescribeTransactions"] * 3
    assert client.now_s() - began_s == pytest.approx(2 * LOOK_EVERY_S)


@pytest.mark.parametrize("state", ["CompleteCommit", "CompleteAbort", "Ongoing", "Empty"])
def test_any_other_state_is_the_end(state: str) -> None:
    store, client = committed(DescribeTransactions=[state])
    store.wait_for_markers()
    assert client.requests == ["DescribeTransactions"]


def test_markers_that_wait_for_a_leader_are_not_waited_for() -> None:
    store, client = committed(DescribeTransactions=[PREPARED] * 1_000)
    began_s = client.now_s()
    store.wait_for_markers()
    assert LONGEST_S <= client.now_s() - began_s < LONGEST_S + 2 * LOOK_EVERY_S


def test_over_a_slow_line_it_does_not_look() -> None:
    store, client = committed(DescribeTransactions=[PREPARED] * 1_000)
    client.took_s = 1.5 * WORTH_S
    store.commit({("t", 0): Position(6)})
    client.requests.clear()
    store.wait_for_markers()
    assert client.requests == []


def test_over_a_line_that_becomes_slow_it_looks_once() -> None:
    store, client = committed(DescribeTransactions=[PREPARED] * 1_000)
    client.took_s = 1.5 * WORTH_S
    store.wait_for_markers()
    assert client.requests == ["DescribeTransactions"]


def test_brokers_before_kafka_3_are_not_asked() -> None:
    """They would close the connection."""
    client = Coordinator()
    client.api_keys.remove(DESCRIBE_TRANSACTIONS)
    store = PositionStore(client, group="g", transactional_id="own")
    store.initialise()
    store.commit({("t", 0): Position(5)})
    store.wait_for_markers()
    assert "DescribeTransactions" not in client.requests


@pytest.mark.parametrize(
    "told", [LOST, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
)
def test_a_commit_is_a_success_whatever_the_coordinator_says_then(told: Any) -> None:
    store, client = committed(DescribeTransactions=[told])
    store.wait_for_markers()
    assert client.requests == ["DescribeTransactions"]
    store.commit({("t", 0): Position(6)})


def test_a_broken_connection_is_not_tried_again_at_once() -> None:
    """During an upgrade to Kafka 3 the coordinator may not know the request yet, and closes it."""
    store, client = committed(DescribeTransactions=[LOST])
    for _ in range(3):
        store.wait_for_markers()
    assert client.requests == ["DescribeTransactions"]
