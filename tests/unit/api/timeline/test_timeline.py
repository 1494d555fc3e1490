"""`/timeline` and its sampler, on in-memory clusters."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest

from ureplicator_common.model import (
    EventKind,
    Partition,
    PartitionState,
    WorkerId,
    position_group,
)
from ureplicator_common.znode_contents import (
    PartitionLoad,
    PastEvent,
    RouteUsage,
    TopicIntent,
    WorkerUsage,
)
from ureplicator_common.znodes.fleet import encode_history
from ureplicator_common.znodes.workers import encode_usage
from ureplicator_controller.api.app import TIMELINE
from ureplicator_controller.api.services import instances as encoded
from ureplicator_controller.api.services.fleet_cache import LOADS_MAX_AGE_S
from ureplicator_controller.api.services.timeline.sampler import TimelineSampler
from ureplicator_testkit.control.rest_fixture import ROUTE, RestFixture, problem_of

GONE = PastEvent(1, EventKind.WORKER, "gone", 1_010_000, worker=WorkerId("w1"))


@pytest.fixture
def busy(rest: RestFixture) -> RestFixture:
    """One partition copied at 2 MB/s, one in error."""
    rest.put_intent("orders", TopicIntent(2, 2, target_topic="orders"))
    rest.add_worker("w1")
    rest.place("orders", {0: "w1", 1: "w1"})
    states = {0: PartitionState.ONLINE, 1: PartitionState.ERROR}
    rest.put_states("w1", "orders", states, reason="too large")
    load = PartitionLoad(bytes_per_s=2e6, records_per_s=2_000.0)
    rest.put_loads("w1", {Partition(ROUTE, "orders", 0): load})
    return rest


def sampler(rest: RestFixture) -> TimelineSampler:
    found = rest.app.extensions[TIMELINE]
    assert isinstance(found, TimelineSampler)
    return found


def shown(rest: RestFixture, query: str = "") -> Any:
    return rest.call("GET", f"/timeline?{query}").get_json()


def test_nothing_is_kept_at_first(rest: RestFixture) -> None:
    found = shown(rest)
    assert (found["routes"], found["events"], found["keptSince"]) == ({}, [], None)


def test_samples_become_a_series_of_the_route(busy: RestFixture) -> None:
    for _ in range(3):
        assert sampler(busy).run_once() == 15.0
        busy.clock.advance(15)
    found = shown(busy, "minutes=1&steps=60")
    series = found["routes"][str(ROUTE)]
    assert series["at"] == [1_000_000, 1_015_000, 1_030_000]
    assert series["bytesPerSecond"] == [2e6] * 3
    assert series["recordsPerSecond"] == [2_000.0] * 3
    assert (series["mismatches"], series["errors"]) == ([1] * 3, [1] * 3)
    assert found["keptSince"] == 1_000_000
    assert 60_000 <= found["end"] - found["begin"] < 61_000


def test_events_are_kept_beyond_the_ring_and_their_duration_follows(busy: RestFixture) -> None:
    moved = PastEvent(
        2, EventKind.MOVE, "balance", 1_011_000, partition=Partition(ROUTE, "orders", 0)
    )
    path = busy.paths.history_block(0)
    busy.put(path, encode_history([GONE, moved]))
    sampler(busy).run_once()
    busy.put(path, encode_history([replace(moved, took_ms=300)]))
    sampler(busy).run_once()
    busy.clock.advance(30)
    events = shown(busy)["events"]
    assert [event["number"] for event in events] == [1, 2]
    assert events[1]["tookMs"] == 300


def test_a_time_in_the_past_is_shown_as_it_was(busy: RestFixture) -> None:
    sampler(busy).run_once()
    busy.clock.advance(7_200)
    assert shown(busy)["routes"] == {}
    found = shown(busy, "at=1970-01-01T00:20:00Z&minutes=10")
    assert found["routes"][str(ROUTE)]["at"]
    assert found["end"] == 1_200_000


def test_lag_of_a_topic_over_time(busy: RestFixture) -> None:
    logs, group = busy.logs["source"], position_group(fleet="test", route=ROUTE)
    for number in (0, 1):
        logs.hold("orders", number, 0, 100)
    for position in (40, 90):
        for number in (0, 1):
            busy.positions.put(group, "orders", number, position)
        sampler(busy).run_once()
        busy.clock.advance(15)
    found = busy.call("GET", "/timeline/topics/orders?minutes=1&steps=60").get_json()
    assert (found["topic"], found["route"]) == ("orders", str(ROUTE))
    assert found["at"] == [1_000_000, 1_015_000]
    assert found["lagRecords"] == [120, 20]
    assert len(found["lagSeconds"]) == 2
    assert busy.call("GET", "/timeline/topics/other").get_json()["at"] == []
    problem_of(busy.call("GET", "/timeline/topics/orders?src=x"), 404)


def test_more_than_a_day_is_not_kept(busy: RestFixture) -> None:
    sampler(busy).run_once()
    busy.clock.advance(86_401)
    sampler(busy).run_once()
    assert shown(busy)["keptSince"] == 1_000_000 + 86_401_000


@pytest.mark.parametrize(
    "query", ["at=yesterday", "minutes=0", "minutes=1441", "steps=99999", "src=x"]
)
def test_wrong_input_is_refused(busy: RestFixture, query: str) -> None:
    problem_of(busy.call("GET", f"/timeline?{query}"), 404 if query == "src=x" else 400)


def test_without_zookeeper_there_is_a_gap_and_one_line(
    busy: RestFixture, caplog: pytest.LogCaptureFixture
) -> None:
    sampler(busy).run_once()
    with busy.zookeeper_unavailable(), caplog.at_level(logging.WARNING):
        for _ in range(3):
            busy.clock.advance(15)
            assert sampler(busy).run_once() == 15.0
    assert len([record for record in caplog.records if "timeline" in record.message]) == 1
    busy.clock.advance(15)
    sampler(busy).run_once()
    assert shown(busy)["routes"][str(ROUTE)]["at"] != []


def put_usage(rest: RestFixture, copied_bytes: int, cpu_ms: int) -> None:
    usage = WorkerUsage(0, cpu_ms, {ROUTE: RouteUsage(copied_bytes // 1_000, copied_bytes)})
    rest.put(rest.paths.measures.usage(WorkerId("w1")), encode_usage(usage), ephemeral=True)


def test_usage_of_a_day_is_summed_up(busy: RestFixture) -> None:
    for copied_bytes, cpu_ms in ((10**9, 500), (10**9 + 10**12, 500 + 3_600_000)):
        put_usage(busy, copied_bytes, cpu_ms)
        sampler(busy).run_once()
        busy.clock.advance(15)
    (found,) = busy.call("GET", "/usage").get_json()["usage"]
    assert found == {
        "route": str(ROUTE),
        "since": 1_015_000,
        "bytes": 10**12,
        "records": 10**9,
        "cpuSeconds": 3_600.0,
        "coreHoursPerTb": 1.0,
    }
    metrics = busy.call("GET", "/metrics").text
    label = f'{{fleet="test",route="{ROUTE}"}}'
    assert f"ureplicator_route_day_cpu_seconds{label} 3600.0" in metrics
    assert f"ureplicator_route_core_hours_per_tb{label} 1.0" in metrics
    busy.clock.advance(86_400)
    assert busy.call("GET", "/usage").get_json() == {"usage": []}


def test_usage_that_cannot_be_read_is_left_out(busy: RestFixture) -> None:
    busy.put(busy.paths.measures.usage(WorkerId("w1")), b"garbage", ephemeral=True)
    sampler(busy).run_once()
    assert busy.call("GET", "/usage").get_json() == {"usage": []}
    assert list(shown(busy)["routes"]) == [str(ROUTE)]


def test_usage_is_no_reason_for_a_new_state(busy: RestFixture) -> None:
    put_usage(busy, 1, 1)
    fleet = sampler(busy)._fleet
    before = fleet.current()
    put_usage(busy, 2, 2)
    assert fleet.current() is before
    busy.clock.advance(LOADS_MAX_AGE_S)
    assert fleet.current() is not before


def test_instances_are_prepared_for_the_next_request(
    busy: RestFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampler(busy).run_once()
    monkeypatch.setattr(encoded, "_details", pytest.fail)
    assert busy.call("GET", "/instances").get_json()["workers"]["w1"]["heldPartitions"] == 2
