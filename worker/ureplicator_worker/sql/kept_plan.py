"""Physical plans that are kept, and evaluated over the rows of one round after the other without a job.

A plan is made once, over an RDD of one partition that holds its rows itself. Each round calls the plan's RDD
with a partition of its own rows, in the thread of the call: so a round costs neither analysis, nor planning,
nor a job of the scheduler. Rows go there, and results come back, as Arrow in files of the scratch folder.

Plans whose result depends on more than the row are not kept: times of the evaluation, random numbers. Nor
are functions in Python, which need a task.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from ureplicator_worker.sql.query import QueryFailed

BATCH_ROWS = 4_096
"""Rows of a result in a batch of Arrow. The size of the result is checked after each."""
_NODES = (
    "WholeStageCodegenExec",
    "InputAdapter",
    "ProjectExec",
    "FilterExec",
    "GenerateExec",
    "RDDScanExec",
)
_NOW = re.compile(r"\b(now|today|tomorrow|yesterday)\b", re.IGNORECASE)
"""Text that Spark takes for a time of the evaluation, when a literal becomes a timestamp or a date."""


class KeptPlans:
    """`java`: the view of the JVM. `source`: DataFrame of one partition that plans are made over."""

    def __init__(self, java: Any, source: Any, *, scratch: Path, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._rows, self._results = scratch / "rows.arrow", scratch / "results.arrow"
        self._schema = source.schema()
        self._read = java.org.apache.spark.sql.api.python.PythonSQLUtils.readArrowStreamFromFile
        self._partition = java.org.apache.spark.rdd.ParallelCollectionPartition
        self._writer = java.org.apache.spark.sql.execution.arrow.ArrowBatchStreamWriter
        self._output = java.java.io.FileOutputStream
        self._arrow = _module(java, "org.apache.spark.sql.execution.arrow.ArrowConverters")
        self._contexts = _module(java, "org.apache.spark.TaskContext")
        self._lazy = getattr(_module(java, "scala.collection.immutable.LazyList"), "from")
        self._any = _module(java, "scala.reflect.ClassTag").Any()
        self._none = _module(java, "scala.None")
        patterns = _module(java, "org.apache.spark.sql.catalyst.trees.TreePattern")
        self._current = patterns.CURRENT_LIKE()

    def keep(self, text: str, execution: Any) -> KeptPlan | None:
        """The plan of a query, unless each round needs one of its own."""
        analysed = execution.analyzed()
        if _NOW.search(text) or analysed.containsPattern(self._current):
            return None
        if not analysed.deterministic():
            return None
        executed = execution.executedPlan()
        if any(node.getClass().getSimpleName() not in _NODES for node in _nodes(executed)):
            return None
        return KeptPlan(executed)

    def evaluate(self, plan: KeptPlan, table: pa.Table) -> pa.Table:
        """Rows of the result. Raises QueryFailed, and what Spark raises."""
        with pa.OSFile(str(self._rows), "wb") as file, pa.ipc.new_stream(file, table.schema) as to:
            to.write_table(table)
        context = self._contexts.empty()
        try:
            batches = self._read(str(self._rows))
            rows = self._arrow.fromBatchIterator(
                batches, self._schema, "UTC", False, False, context
            )
            partition = self._partition(0, 0, self._lazy(rows), self._any)
            self._write(plan, plan.rdd.compute(partition, context), context)
        finally:
            context.markTaskCompleted(self._none)
        with pa.OSFile(str(self._results)) as file:
            return pa.ipc.open_stream(file).read_all()

    def _write(self, plan: KeptPlan, results: Any, context: Any) -> None:
        """Results to their file. Raises QueryFailed for too many."""
        file = self._output(str(self._results))
        try:
            to = self._writer(plan.schema, file, "UTC", False, False)
            batches = self._arrow.toBatchIterator(
                results, plan.schema, BATCH_ROWS, "UTC", False, False, context
            )
            while batches.hasNext():
                to.writeBatches(batches.take(1))
                if self._results.stat().st_size > self._limit_bytes:
                    size = f"{self._limit_bytes >> 20} MiB, a quarter of memory_mib"
                    raise QueryFailed(f"the results are larger than {size}")
            to.end()
        finally:
            file.close()


class KeptPlan:
    """`schema`: of its rows."""

    def __init__(self, executed: Any) -> None:
        self.schema = executed.schema()
        self.rdd = executed.execute()


def _module(java: Any, name: str) -> Any:
    """An object of Scala."""
    return getattr(getattr(java, f"{name}$"), "MODULE$")


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    children = plan.children()
    for index in range(children.size()):
        yield from _nodes(children.apply(index))
