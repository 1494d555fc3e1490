"""A picture of the fleet: what REST shows, as tables for a terminal and as plain lines. Pure.

Names and reasons come from outside: each becomes printable text before it is shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from ureplicator_cli.output import duration, owners, switch_states, worker_name
from ureplicator_common.printable import printable

MAX_ROWS = 12
"""Rows of each table; a line says how many more there are."""
_UNITS = ((10**9, "GB/s"), (10**6, "MB/s"), (10**3, "kB/s"))


@dataclass(frozen=True, slots=True)
class Bodies:
    """Responses of one reading; those of `load` and `lag` are empty if they were refused."""

    ready: Mapping[str, Any]
    switches: Mapping[str, Any]
    validation: Mapping[str, Any]
    routes: Mapping[str, Any]
    workers: Mapping[str, Any]
    load: Mapping[str, Any]
    lag: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Rows:
    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Picture:
    """`summary`: one line; `notes`: conditions that need attention."""

    summary: str
    notes: tuple[str, ...]
    tables: tuple[Rows, ...]
    mismatches: Rows


def picture_of(bodies: Bodies) -> Picture:
    """All texts of a picture are printable."""
    return Picture(
        summary=printable(_summary(bodies)),
        notes=tuple(map(printable, bodies.validation["conditions"])),
        tables=(_routes(bodies), _workers(bodies), _lagging(bodies)),
        mismatches=_mismatches(bodies),
    )


def heading(picture: Picture | None, *, age_s: float, failure: str) -> str:
    """The first line: what is shown, and how old it is while no controller responds."""
    if picture is None:
        return printable(f"no picture yet: {failure}")
    if failure:
        return printable(f"{duration(age_s)} old, {failure}: {picture.summary}")
    return picture.summary


def plain_lines(picture: Picture | None, *, time: str, age_s: float, failure: str) -> Iterator[str]:
    """Lines for a pipe, each with its time."""
    yield f"{time} {heading(picture, age_s=age_s, failure=failure)}"
    if picture is None or failure:
        return
    for note in picture.notes:
        yield f"{time} condition {note}"
    for table in (*picture.tables, picture.mismatches):
        for row in table.rows:
            shown = (f"{head}={cell or '-'}" for head, cell in zip(table.heads, row, strict=True))
            yield f"{time} {table.title}: {' '.join(shown)}"


def rendered(picture: Picture | None, *, age_s: float, failure: str, whole: bool) -> Group:
    """Tables for a terminal. `whole`: with routes, workers and topics; else only what is not as it should
    be."""
    style = "bold red" if failure else "bold"
    parts: list[Text | Table] = [Text(heading(picture, age_s=age_s, failure=failure), style=style)]
    if picture is not None:
        parts += [Text(note, style="bold red") for note in picture.notes]
        tables = (*picture.tables, picture.mismatches) if whole else (picture.mismatches,)
        for table in tables:
            parts += _table(table)
    return Group(*parts)


def _table(shown: Rows) -> list[Text | Table]:
    if not shown.rows:
        return [Text(f"{shown.title}: none")]
    table = Table(title=escape(shown.title), title_justify="left", title_style="bold")
    for head in shown.heads:
        table.add_column(head, overflow="fold")
    for row in shown.rows[:MAX_ROWS]:
        table.add_row(*map(escape, row))
    more = len(shown.rows) - MAX_ROWS
    return [table, Text(f"and {more} more")] if more > 0 else [table]


def _summary(bodies: Bodies) -> str:
    validation, live = bodies.validation, [worker["live"] for worker in bodies.workers.values()]
    load = bodies.load.get("topicWorkload", {})
    texts = (
        f"leader {bodies.ready['leader'] or 'none'}",
        f"{sum(live)} of {len(live)} workers",
        f"{validation['numOnlineTopicPartitions']} of {validation['numTopicPartitions']} online",
        f"{validation['numErrorTopicPartitions']} in error",
        f"{len(validation['mismatches'])} mismatches",
        rate(load.get("bytesPerSecond")),
        switch_states(**bodies.switches),
    )
    return ", ".join(filter(None, texts))


def rate(bytes_per_s: float | None) -> str:
    """Bytes per second for people; "" if they are not known."""
    if bytes_per_s is None:
        return ""
    for size, unit in _UNITS:
        if bytes_per_s >= size:
            return f"{bytes_per_s / size:.3g} {unit}"
    return f"{bytes_per_s:.0f} B/s"


def _routes(bodies: Bodies) -> Rows:
    heads = ("route", "state", "topics", "partitions", "behind", "bytes")
    rows = [
        (
            name,
            "paused" if route["paused"] else "active",
            str(route["topics"]),
            str(route["partitions"]),
            _behind([topic for topic in bodies.lag.get("topics", ()) if topic["route"] == name]),
            rate(_sum(bodies.load.get("topics"), name)),
        )
        for name, route in bodies.routes.items()
    ]
    return _rows("routes", heads, rows)


def _sum(topics: list[Mapping[str, Any]] | None, route: str) -> float | None:
    if topics is None:
        return None
    return float(sum(topic["bytesPerSecond"] for topic in topics if topic["route"] == route))


def _behind(topics: list[Mapping[str, Any]]) -> str:
    """Lag of the topic that is furthest behind."""
    known = [topic["lagSeconds"] for topic in topics if topic["lagSeconds"] is not None]
    unknown = f", {len(topics) - len(known)} not known" if len(topics) > len(known) else ""
    return f"{duration(max(known))}{unknown}" if known else "not known" if topics else ""


def _workers(bodies: Bodies) -> Rows:
    loads = {worker["workerId"]: worker for worker in bodies.load.get("workerInstances", ())}
    heads = ("worker", "slots", "ideal", "online", "in error", "bytes")
    rows = [
        (
            worker_name(name, worker),
            str(worker["slots"]),
            str(worker["idealPartitions"]),
            str(worker["onlinePartitions"]),
            str(worker["errorPartitions"]),
            rate(loads.get(name, {}).get("totalWorkload")),
        )
        for name, worker in bodies.workers.items()
    ]
    return _rows("workers", heads, rows)


def _lagging(bodies: Bodies) -> Rows:
    """Topics by lag, those with an unknown one first; also those that only an open transaction holds."""
    topics = sorted(
        bodies.lag.get("topics", ()),
        key=lambda each: (each["lagSeconds"] is not None, -(each["lagSeconds"] or 0)),
    )
    rows = [
        (
            f"{topic['route']}/{topic['topic']}",
            "not known" if topic["lagSeconds"] is None else duration(topic["lagSeconds"]),
            "not known" if topic["lagRecords"] is None else f"{topic['lagRecords']:,}",
            f"{topic.get('heldRecords') or 0:,}",
            duration(topic["retentionSeconds"]),
        )
        for topic in topics
        if topic["lagRecords"] != 0 or topic.get("heldRecords")
    ]
    heads = ("topic", "behind", "records", "held", "until lost")
    return _rows("topics behind", heads, rows)


def _mismatches(bodies: Bodies) -> Rows:
    rows = [
        (
            f"{mismatch['route']}/{mismatch['topic']}/{mismatch['partition']}",
            owners(mismatch["ideal"]),
            owners(mismatch["actual"]),
            mismatch["reason"],
        )
        for mismatch in bodies.validation["mismatches"]
    ]
    return _rows("mismatches", ("partition", "ideal", "actual", "reason"), rows)


def _rows(title: str, heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Rows:
    shown = (tuple(printable(cell).replace("\n", " ") for cell in row) for row in rows)
    return Rows(title, heads, tuple(shown))
