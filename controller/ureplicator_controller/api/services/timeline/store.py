"""Store of the timeline: SQLite, in a file or in memory, bounded by time.

    figures   route, at_ms -> figures of the route                  5,760 a route and day, at one each 15 s
    topics    route, topic, at_ms -> lag of a topic that lagged most           `MAX_TOPICS` at each time
    usage     route, at_ms -> what was copied since the time before, and the processor time for it
    events    at_ms, number -> the event as JSON, as /history shows it

A day is `KEPT_S`. The figures are aggregated by SQLite into as many steps as a page has room for: of lags,
mismatches and errors the worst of each step, of rates the mean.

A file that SQLite cannot read is moved aside: the figures of one day are not worth a controller that does not
start. Each controller has a file of its own; what another controller saw is in the other one.
"""

from __future__ import annotations

import json
import logging
import sqlite3
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ureplicator_common.errors import OperatingError
from ureplicator_common.model import Route, TopicKey
from ureplicator_controller.core.reporting.route_figures import RouteFigures, TopicFigures
from ureplicator_controller.core.usage import CopyCost

KEPT_S = 24 * 3_600.0
MAX_EVENTS = 20_000
"""Events of a day that are kept, the last ones: about 10 MB."""
MAX_TOPICS = 30
"""Topics of one sample that are kept, those that lag most: about as much."""
IN_MEMORY = ":memory:"

log = logging.getLogger(__name__)

_TABLES = """
CREATE TABLE IF NOT EXISTS figures (
    route TEXT, at_ms INTEGER, lag_records INTEGER, lag_s REAL, bytes_per_s REAL, records_per_s REAL,
    mismatches INTEGER, errors INTEGER, PRIMARY KEY (route, at_ms)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS topics (
    route TEXT, topic TEXT, at_ms INTEGER, lag_records INTEGER, lag_s REAL,
    PRIMARY KEY (route, topic, at_ms)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS topics_by_time ON topics (at_ms);
CREATE TABLE IF NOT EXISTS usage (
    route TEXT, at_ms INTEGER, records INTEGER, bytes INTEGER, cpu_s REAL,
    PRIMARY KEY (route, at_ms)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS events (
    at_ms INTEGER, number INTEGER, shown TEXT, PRIMARY KEY (at_ms, number)) WITHOUT ROWID;
"""
_STEPS = """
SELECT route, (at_ms - :from_ms) / :step_ms AS step,
    MAX(lag_records), MAX(lag_s), AVG(bytes_per_s), AVG(records_per_s),
    MAX(mismatches), MAX(errors)
FROM figures WHERE at_ms >= :from_ms AND at_ms < :until_ms GROUP BY route, step ORDER BY route, step
"""
_TOPIC_STEPS = """
SELECT (at_ms - :from_ms) / :step_ms AS step, MAX(lag_records), MAX(lag_s)
FROM topics WHERE route = :route AND topic = :topic AND at_ms >= :from_ms AND at_ms < :until_ms
GROUP BY step ORDER BY step
"""


_USAGE = """
SELECT route, SUM(records), SUM(bytes), SUM(cpu_s), MIN(at_ms)
FROM usage WHERE at_ms >= :from_ms GROUP BY route ORDER BY route
"""


def kept_from_ms(now_ms: int) -> int:
    """Begin of the time that is kept."""
    return now_ms - round(KEPT_S * 1_000)


class TimelineUnavailable(OperatingError):
    """The store cannot be read or written: its disk is full, for example."""


@dataclass(frozen=True, slots=True)
class Event:
    """`shown`: as `/history` shows it."""

    at_ms: int
    number: int
    shown: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class RouteCost:
    """Cost of the copy of a route since `since_ms`, the time of its first figures."""

    route: Route
    cost: CopyCost
    since_ms: int


class TimelineStore:
    """Store of the timeline, shared by threads. Every call may raise TimelineUnavailable.

    The database is closed with the store or the process: an application of Flask has no end of its own.
    """

    def __init__(self, path: str = IN_MEMORY) -> None:
        self._lock = threading.Lock()
        self._database = _open(path)
        self._close = weakref.finalize(self, self._database.close)

    def add(
        self,
        figures: Sequence[RouteFigures],
        events: Sequence[Event],
        topics: Sequence[TopicFigures] = (),
    ) -> None:
        """Add figures of one time, and events that are new or have changed."""
        rows = [
            (
                str(figure.route),
                figure.at_ms,
                figure.lag_records,
                figure.lag_s,
                figure.bytes_per_s,
                figure.records_per_s,
                figure.mismatches,
                figure.errors,
            )
            for figure in figures
        ]
        shown = [(event.at_ms, event.number, json.dumps(dict(event.shown))) for event in events]
        lags = [
            (str(topic.key.route), topic.key.topic, topic.at_ms, topic.lag_records, topic.lag_s)
            for topic in topics
        ]
        with self._writing() as database:
            database.executemany("REPLACE INTO topics VALUES (?, ?, ?, ?, ?)", lags)
            database.executemany("REPLACE INTO figures VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
            database.executemany("REPLACE INTO events VALUES (?, ?, ?)", shown)

    def add_usage(self, costs: Mapping[Route, CopyCost], *, at_ms: int) -> None:
        """Add what was copied since the last call."""
        rows = [
            (str(route), at_ms, cost.records, cost.bytes, cost.cpu_s)
            for route, cost in costs.items()
        ]
        with self._writing() as database:
            database.executemany("REPLACE INTO usage VALUES (?, ?, ?, ?, ?)", rows)

    def usage(self, *, from_ms: int) -> list[RouteCost]:
        """Cost of the copy from that time on, by route."""
        with self._reading() as database:
            rows = database.execute(_USAGE, {"from_ms": from_ms}).fetchall()
        return [
            RouteCost(Route.parse(route), CopyCost(records, bytes_, cpu_s), since_ms)
            for route, records, bytes_, cpu_s, since_ms in rows
        ]

    def forget(self, *, before_ms: int) -> None:
        """Drop what is older, and events beyond the last `MAX_EVENTS`."""
        with self._writing() as database:
            for table in ("figures", "topics", "usage", "events"):
                database.execute(f"DELETE FROM {table} WHERE at_ms < ?", (before_ms,))  # noqa: S608
            database.execute(
                "DELETE FROM events WHERE at_ms < (SELECT at_ms FROM events"
                " ORDER BY at_ms DESC LIMIT 1 OFFSET ?)",
                (MAX_EVENTS,),
            )

    def steps(self, *, from_ms: int, until_ms: int, step_ms: int) -> list[RouteFigures]:
        """Figures from `from_ms` to before `until_ms`, one for each route and step, by route and time."""
        with self._reading() as database:
            bound = {"from_ms": from_ms, "until_ms": until_ms, "step_ms": step_ms}
            rows = database.execute(_STEPS, bound).fetchall()
        return [
            RouteFigures(Route.parse(route), from_ms + step * step_ms, *figures)
            for route, step, *figures in rows
        ]

    def topic_steps(
        self, key: TopicKey, *, from_ms: int, until_ms: int, step_ms: int
    ) -> list[TopicFigures]:
        """Steps as of `steps`, of one topic; without the times when others lagged more."""
        with self._reading() as database:
            bound = {"from_ms": from_ms, "until_ms": until_ms, "step_ms": step_ms}
            wanted = {"route": str(key.route), "topic": key.topic}
            rows = database.execute(_TOPIC_STEPS, bound | wanted).fetchall()
        return [TopicFigures(key, from_ms + step * step_ms, *lag) for step, *lag in rows]

    def events(self, *, from_ms: int, until_ms: int, limit: int) -> list[dict[str, Any]]:
        """The last events of this time, oldest first."""
        with self._reading() as database:
            rows = database.execute(
                "SELECT shown FROM events WHERE at_ms >= ? AND at_ms < ?"
                " ORDER BY at_ms DESC, number DESC LIMIT ?",
                (from_ms, until_ms, limit),
            ).fetchall()
        return [json.loads(shown) for (shown,) in reversed(rows)]

    def first_ms(self) -> int | None:
        """Time of the oldest figures."""
        with self._reading() as database:
            first: int | None = database.execute("SELECT MIN(at_ms) FROM figures").fetchone()[0]
        return first

    def close(self) -> None:
        with self._lock:
            self._close()

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            try:
                yield self._database
            except sqlite3.Error as error:
                raise TimelineUnavailable(f"the timeline cannot be read: {error}") from error

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction."""
        with self._lock:
            try:
                with self._database:
                    yield self._database
            except sqlite3.Error as error:
                raise TimelineUnavailable(f"the timeline cannot be written: {error}") from error


def _open(path: str) -> sqlite3.Connection:
    """Raises TimelineUnavailable."""
    try:
        if path != IN_MEMORY:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
        return _connected(path)
    except sqlite3.DatabaseError as error:
        if path == IN_MEMORY or not Path(path).is_file():
            raise TimelineUnavailable(f"{path}: {error}") from error
        log.warning("%s is moved aside: %s", path, error)
        Path(path).replace(f"{path}.unreadable")
        return _connected(path)
    except OSError as error:
        raise TimelineUnavailable(f"{path}: {error.strerror}") from error


def _connected(path: str) -> sqlite3.Connection:
    database = sqlite3.connect(path, check_same_thread=False)
    try:
        database.executescript(_TABLES)
    except sqlite3.Error:
        database.close()
        raise
    return database
