"""Store of the timeline: steps, bounds, and files that are lost or full."""

from __future__ import annotations

import gc
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from ureplicator_common.model import Route, TopicKey
from ureplicator_controller.api.services.timeline import store as module
from ureplicator_controller.api.services.timeline.store import (
    Event,
    TimelineStore,
    TimelineUnavailable,
)
from ureplicator_controller.core.reporting.lag import PartitionLag, summarise
from ureplicator_controller.core.reporting.route_figures import (
    RouteFigures,
    TopicFigures,
    lagging_topics,
)

ONE, OTHER = Route("a", "b"), Route("b", "a")


def figures(
    at_ms: int, *, route: Route = ONE, lag: int | None = 0, rate: float = 0.0
) -> RouteFigures:
    lag_s = None if lag is None else lag / 10
    return RouteFigures(route, at_ms, lag, lag_s, rate, rate / 100, lag or 0, 0)


def event(at_ms: int, number: int, reason: str = "moved") -> Event:
    return Event(at_ms, number, {"number": number, "reason": reason})


@pytest.fixture
def store() -> TimelineStore:
    return TimelineStore()


def test_a_step_has_the_worst_lag_and_the_mean_rate(store: TimelineStore) -> None:
    samples = [(1_000, 5, 100.0), (1_400, 9, 300.0), (1_600, 1, 7.0)]
    store.add([figures(at, lag=lag, rate=rate) for at, lag, rate in samples], [])
    assert store.steps(from_ms=1_000, until_ms=2_000, step_ms=500) == [
        figures(1_000, lag=9, rate=200.0),
        figures(1_500, lag=1, rate=7.0),
    ]


def test_unknown_lag_is_not_zero(store: TimelineStore) -> None:
    store.add([figures(1_000, lag=None)], [])
    (found,) = store.steps(from_ms=0, until_ms=2_000, step_ms=1_000)
    assert (found.lag_records, found.lag_s) == (None, None)


def test_routes_and_times_are_apart_and_the_end_is_excluded(store: TimelineStore) -> None:
    store.add([figures(1_000), figures(1_000, route=OTHER), figures(2_000)], [])
    found = store.steps(from_ms=1_000, until_ms=2_000, step_ms=100)
    assert [(step.route, step.at_ms) for step in found] == [(ONE, 1_000), (OTHER, 1_000)]
    assert store.first_ms() == 1_000


def test_the_last_events_oldest_first_and_a_changed_one_once(store: TimelineStore) -> None:
    store.add([], [event(1_000, 1), event(1_000, 2), event(3_000, 3)])
    store.add([], [event(1_000, 2, "took 5 ms")])
    found = store.events(from_ms=0, until_ms=9_000, limit=2)
    assert [row["number"] for row in found] == [2, 3]
    assert found[0]["reason"] == "took 5 ms"
    assert store.events(from_ms=0, until_ms=3_000, limit=9)[-1]["number"] == 2


def test_what_is_older_is_forgotten_and_events_are_bounded(
    store: TimelineStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_EVENTS", 2)
    store.add([figures(at) for at in (1_000, 2_000)], [event(at, at) for at in range(1_990, 2_000)])
    store.forget(before_ms=1_500)
    assert store.first_ms() == 2_000
    kept = [row["number"] for row in store.events(from_ms=0, until_ms=9_000, limit=99)]
    assert kept == [1_997, 1_998, 1_999]


def test_lag_of_a_topic_is_kept_by_steps_and_forgotten(store: TimelineStore) -> None:
    key, other = TopicKey(ONE, "t"), TopicKey(OTHER, "t")
    for at_ms, lag in ((1_000, 5), (1_400, 9), (1_600, None)):
        store.add([], [], [TopicFigures(topic, at_ms, lag, lag) for topic in (key, other)])
    found = store.topic_steps(key, from_ms=1_000, until_ms=2_000, step_ms=500)
    assert found == [TopicFigures(key, 1_000, 9, 9.0), TopicFigures(key, 1_500, None, None)]
    store.forget(before_ms=1_500)
    (left,) = store.topic_steps(key, from_ms=0, until_ms=9_000, step_ms=100)
    assert left.at_ms == 1_600


def test_topics_whose_records_wait_longest_are_kept() -> None:
    lag = PartitionLag(lag_records=1, lag_s=0.0)
    lags = {
        TopicKey(ONE, "waits"): summarise([replace(lag, lag_s=9.0), lag]),
        TopicKey(ONE, "many"): summarise(
            [replace(lag, lag_records=70), replace(lag, lag_records=30)]
        ),
        TopicKey(ONE, "few"): summarise([lag]),
        TopicKey(ONE, "unknown"): summarise([PartitionLag()]),
    }
    found = lagging_topics(lags, at_ms=7, limit=3)
    assert [(topic.key.topic, topic.lag_records, topic.lag_s) for topic in found] == [
        ("waits", 2, 9.0),
        ("many", 100, 0.0),
        ("few", 1, 0.0),
    ]
    assert [topic.key.topic for topic in lagging_topics(lags, at_ms=7, limit=9)][3:] == ["unknown"]


def test_a_file_outlives_the_process(tmp_path: Path) -> None:
    path = str(tmp_path / "new" / "f-c1.sqlite")
    first = TimelineStore(path)
    first.add([figures(1_000)], [event(1_000, 1)])
    first.close()
    again = TimelineStore(path)
    assert again.first_ms() == 1_000
    assert len(again.events(from_ms=0, until_ms=9_000, limit=9)) == 1


def test_a_store_that_is_dropped_closes_its_database() -> None:
    """Python from 3.13 on warns of a database that is left open."""
    store = TimelineStore()
    database = store._database
    del store
    gc.collect()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        database.execute("SELECT 1")


def test_a_file_that_is_no_database_is_moved_aside(tmp_path: Path) -> None:
    path = tmp_path / "f-c1.sqlite"
    path.write_bytes(b"no database at all, and long enough to be looked at" * 50)
    store = TimelineStore(str(path))
    store.add([figures(1_000)], [])
    assert store.first_ms() == 1_000
    assert (tmp_path / "f-c1.sqlite.unreadable").exists()


def test_a_folder_that_cannot_be_made_is_an_operating_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TimelineUnavailable):
        TimelineStore(str(tmp_path / "file" / "f.sqlite"))


def test_errors_of_the_database_are_operating_errors(store: TimelineStore) -> None:
    store.close()
    with pytest.raises(TimelineUnavailable, match="cannot be read"):
        store.first_ms()
    with pytest.raises(TimelineUnavailable, match="cannot be written"):
        store.add([figures(1)], [])
    assert issubclass(sqlite3.ProgrammingError, sqlite3.Error)
