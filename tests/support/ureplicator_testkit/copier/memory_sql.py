"""Evaluator of a few queries in memory, in place of Spark's session.

Texts are looked up; the plan of a query is a function of the table. Results come in the wrong order: what
depends on their order is the caller's.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from ureplicator_worker.sql.query import ROW, Query, QueryFailed, QueryRefused

ALL = "SELECT * FROM records"
EVEN = "SELECT * FROM records WHERE offset % 2 = 0"
TWICE = "SELECT key, explode(array(value, value)) AS value, partition FROM records"
UPPER = "SELECT upper(value) AS value FROM records"
FAILS = "SELECT raise_error(value) AS value FROM records"
AWAY = "SELECT value, key AS topic FROM records"
RECENT = "SELECT * FROM records WHERE timestamp > '2001-01-01'"
EPOCH = "SELECT value, make_timestamp(value) AS timestamp FROM records"
WHOLE = frozenset({"key", "value", "headers"})


def _all(table: pa.Table) -> pa.Table:
    return table.select([ROW])


def _even(table: pa.Table) -> pa.Table:
    rows, offsets = table.column(ROW).to_pylist(), table.column("offset").to_pylist()
    kept = [row for row, offset in zip(rows, offsets, strict=True) if offset % 2 == 0]
    return pa.table({ROW: pa.array(kept, pa.int32())})


def _twice(table: pa.Table) -> pa.Table:
    """The second copy of all rows behind the first of all."""
    once = table.select([ROW, "value"])
    return pa.concat_tables([once, once])


def _upper(table: pa.Table) -> pa.Table:
    """Backwards, and null for an empty value."""
    rows = table.select([ROW, "value"]).to_pylist()
    found = [(row[ROW], (row["value"] or b"").upper() or None) for row in reversed(rows)]
    return pa.table(
        {
            ROW: pa.array([row for row, _ in found], pa.int32()),
            "value": pa.array([value for _, value in found], pa.binary()),
        }
    )


def _fails(table: pa.Table) -> pa.Table:
    if b"bad" in table.column("value").to_pylist():
        raise QueryFailed("[USER_RAISED_EXCEPTION] bad")
    return table.select([ROW, "value"])


def _away(table: pa.Table) -> pa.Table:
    names = [key.decode() for key in table.column("key").to_pylist()]
    return table.select([ROW]).append_column("topic", pa.array(names))


def _recent(table: pa.Table) -> pa.Table:
    rows, times = table.column(ROW).to_pylist(), table.column("timestamp").cast(pa.int64())
    kept = [
        row for row, us in zip(rows, times.to_pylist(), strict=True) if us > 978_307_200_000_000
    ]
    return pa.table({ROW: pa.array(kept, pa.int32())})


def _epoch(table: pa.Table) -> pa.Table:
    """The value is a number of microseconds."""
    times = [int(value) for value in table.column("value").to_pylist()]
    column = pa.array(times, pa.timestamp("us", tz="UTC"))
    return table.select([ROW]).append_column("timestamp", column)


def _query(
    plan: Callable[[pa.Table], pa.Table],
    *,
    inputs: frozenset[str] = frozenset(),
    passed: frozenset[str] = frozenset(),
    computed: tuple[str, ...] = (),
) -> Query:
    return Query(plan, inputs, passed, computed)


_VALUE = frozenset({"value"})
QUERIES = {
    ALL: _query(_all, passed=WHOLE),
    EVEN: _query(_even, inputs=frozenset({"offset"}), passed=WHOLE),
    TWICE: _query(
        _twice, inputs=_VALUE, passed=frozenset({"key", "partition"}), computed=("value",)
    ),
    UPPER: _query(_upper, inputs=_VALUE, computed=("value",)),
    FAILS: _query(_fails, inputs=_VALUE, computed=("value",)),
    AWAY: _query(_away, inputs=frozenset({"key"}), passed=_VALUE, computed=("topic",)),
    RECENT: _query(_recent, inputs=frozenset({"timestamp"}), passed=WHOLE),
    EPOCH: _query(_epoch, inputs=_VALUE, passed=_VALUE, computed=("timestamp",)),
}


class MemorySql:
    """`rows`: of the tables that were evaluated."""

    def __init__(self) -> None:
        self.rows: list[int] = []

    def compile(self, text: str) -> Query:
        if text not in QUERIES:
            raise QueryRefused("[PARSE_SYNTAX_ERROR] Syntax error")
        return QUERIES[text]

    def evaluate(self, query: Query, table: pa.Table) -> pa.Table:
        self.rows.append(table.num_rows)
        return query.plan(table)
