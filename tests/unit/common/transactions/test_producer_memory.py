"""Memory of producers: what exactly once without transactions needs of the brokers' settings."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from ureplicator_common.kafka.client import Broker, ClusterView
from ureplicator_common.kafka.errors import ErrorCode
from ureplicator_common.kafka.transactions.broker_settings import read_memory
from ureplicator_common.kafka.transactions.producer_memory import (
    IDLE,
    PRODUCER,
    PRODUCER_KEPT_S,
    TRANSACTIONAL_ID,
    ProducerMemory,
    memory_of,
)
from ureplicator_testkit.kafka.coordinator import LOST, Coordinator

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
DEFAULTS = {PRODUCER: str(DAY_MS), TRANSACTIONAL_ID: str(7 * DAY_MS), IDLE: "600000"}


def of(**changes_ms: int) -> ProducerMemory:
    """Memory of one broker whose settings differ from the defaults."""
    names = {"producer": PRODUCER, "transactional_id": TRANSACTIONAL_ID, "idle": IDLE}
    return memory_of([{**DEFAULTS, **{names[n]: str(v) for n, v in changes_ms.items()}}])


def test_the_defaults_are_enough() -> None:
    assert memory_of([DEFAULTS]) == memory_of([DEFAULTS] * 3)
    assert (of().fault(), of().unread, of().kept_s) == ("", "", PRODUCER_KEPT_S)
    assert of(producer=20 * DAY_MS).kept_s == PRODUCER_KEPT_S


@pytest.mark.parametrize(
    ("changes_ms", "fault"),
    [
        ({"producer": 1_200_000}, ""),
        (
            {"producer": 1_199_999},
            "producer.id.expiration.ms = 1199999, too short beside connections.max.idle.ms = 600000",
        ),
        ({"producer": 5_000, "idle": 2_000}, ""),
        ({"idle": 12 * HOUR_MS}, ""),
        (
            {"idle": -1},
            "producer.id.expiration.ms = 86400000, too short beside connections.max.idle.ms < 0, by which"
            " connections are never closed",
        ),
        ({"transactional_id": DAY_MS}, ""),
        (
            {"transactional_id": DAY_MS - 1},
            "transactional.id.expiration.ms = 86399999, less than a day",
        ),
    ],
)
def test_settings_that_are_too_short(changes_ms: Mapping[str, int], fault: str) -> None:
    assert of(**changes_ms).fault() == fault


def test_the_shortest_memory_of_all_brokers_counts_and_the_longest_idle_time() -> None:
    short, patient = {**DEFAULTS, PRODUCER: str(2 * HOUR_MS)}, {**DEFAULTS, IDLE: str(2 * HOUR_MS)}
    assert memory_of([DEFAULTS, short]).kept_s == 3_600
    assert memory_of([DEFAULTS, short]).fault() == memory_of([DEFAULTS, patient]).fault() == ""
    assert "too short" in memory_of([short, patient]).fault()


def test_a_short_memory_is_halved_for_the_clocks() -> None:
    assert of(producer=HOUR_MS).kept_s == 1_800


def test_before_kafka_3_4_a_producer_is_known_as_long_as_a_transactional_id() -> None:
    old = {TRANSACTIONAL_ID: str(DAY_MS), IDLE: "600000"}
    assert (memory_of([old]).of(PRODUCER), memory_of([old]).unread) == (DAY_MS / 1_000, "")


def test_what_is_not_shown_counts_as_the_default_and_is_said() -> None:
    assert memory_of([{}]).fault() == ""
    assert "connections.max.idle.ms" in memory_of([{PRODUCER: "1"}]).unread
    assert memory_of([{PRODUCER: str(HOUR_MS)}]).kept_s == 1_800


def reading(**scripts: list[object]) -> ProducerMemory:
    """The reading of a cluster of two brokers."""
    client = Coordinator(**scripts)
    client.settings = {IDLE: "600000", PRODUCER: "7200000", "other": "x", TRANSACTIONAL_ID: "1"}
    client.view_found = ClusterView("c", {n: Broker(n, "h", n) for n in (1, 2)}, {}, {})
    return read_memory(client)


def test_all_brokers_are_asked() -> None:
    found = reading()
    assert (found.unread, found.of(PRODUCER), found.of(TRANSACTIONAL_ID)) == ("", 7_200, 0.001)


def test_a_broker_that_does_not_tell_is_named() -> None:
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    denied = reading(DescribeConfigs=[0, int(code)])
    assert "the principal lacks DESCRIBE_CONFIGS on the cluster" in denied.unread
    assert denied.of(PRODUCER) == 7_200
    silent = reading(DescribeConfigs=[LOST, LOST])
    assert (silent.unread, silent.fault()) == ("broken", "")
