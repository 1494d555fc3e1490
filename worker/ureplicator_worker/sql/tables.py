"""The records of a round as a table of Arrow, under the names and types of the view. Pure.

All records are read at once, field by field (`records.columns`). Keys, values and headers that the query
does not compute with are passed over, and null in the table.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import pyarrow as pa

from ureplicator_worker.records.columns import APPEND_TIME, Fields
from ureplicator_worker.records.columns import SCHEMA as RECORDS
from ureplicator_worker.records.varints import Numbers
from ureplicator_worker.sql.pieces import joined, runs_of
from ureplicator_worker.sql.query import ROW, QueryFailed
from ureplicator_worker.sql.rounds import Round

SCHEMA = RECORDS.append(pa.field(ROW, pa.int32()))
"""`query.COLUMNS` as Arrow has them, and the number of the row."""
MAX_TIME_MS = ((1 << 63) - 1) // 1_000
"""Spark counts microseconds in 64 bits, Kafka milliseconds."""


def table_of(round_: Round, inputs: Collection[str]) -> pa.Table:
    """Rows of the view; columns that are not `inputs` are null. Raises QueryFailed, CorruptBatch."""
    fields = Fields(*joined(round_.pieces))
    offsets, times_ms, kinds = fields.places_and_times(runs_of(round_.pieces))
    made: dict[str, Any] = {ROW: pa.array(np.arange(round_.rows, dtype=np.int32))}
    for name in ("key", "value"):
        if name in inputs:
            made[name] = fields.field()
        else:
            fields.pass_over()
    headers = fields.headers()
    if "headers" in inputs:
        made["headers"] = headers
    if "timestamp" in inputs:
        made["timestamp"] = _times(times_ms)
    if "offset" in inputs:
        made["offset"] = pa.array(offsets)
    if "timestampType" in inputs:
        made["timestampType"] = pa.array((kinds == APPEND_TIME).astype(np.int32))
    for name in ("topic", "partition"):
        if name in inputs:
            made[name] = _of_tasks(round_, name)
    columns = [
        made[column.name] if column.name in made else pa.nulls(round_.rows, column.type)
        for column in SCHEMA
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def _times(times_ms: Numbers) -> pa.Array:
    """Raises QueryFailed: a producer may have sent any number, such as nanoseconds."""
    for time_ms in (int(times_ms.min()), int(times_ms.max())):
        if not -MAX_TIME_MS <= time_ms <= MAX_TIME_MS:
            raise QueryFailed(f"timestamp {time_ms} ms is out of range of Spark's timestamps")
    return pa.array(times_ms * 1_000).cast(SCHEMA.field("timestamp").type)


def _of_tasks(round_: Round, name: str) -> pa.ChunkedArray:
    """Topic or partition of each record."""
    type_ = SCHEMA.field(name).type
    return pa.chunked_array(
        [
            pa.repeat(pa.scalar(getattr(segment.task, name), type_), segment.stop - segment.first)
            for segment in round_.segments
        ]
    ).combine_chunks()
