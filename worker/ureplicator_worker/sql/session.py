"""A SparkSession of the process of a slot, in local mode; the module of `sql` that uses pyspark.

A query is parsed once. The column with the number of the row (`query.ROW`) is added to each projection of the
parsed plan, so that the user's query need not name it. The physical plan is kept and evaluated over the rows
of each round (`kept_plan`). What cannot be kept is analysed and planned for each round, over the view with
the round's rows.

One thread and one partition: rows keep their order.
"""

from __future__ import annotations

import importlib
import logging
import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JNetworkError
from pyspark import SparkConf
from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame, SparkSession

from ureplicator_worker.copier.record.user_errors import python_reason
from ureplicator_worker.engines import jvm
from ureplicator_worker.engines.java_errors import cause_of
from ureplicator_worker.sql.kept_plan import KeptPlan, KeptPlans
from ureplicator_worker.sql.query import (
    ANALYSED_NODES,
    PARSED_NODES,
    ROW,
    VIEW,
    Column,
    Query,
    QueryFailed,
    QueryRefused,
    SessionLost,
    casts,
    check_columns,
    check_nodes,
    computed_of,
    passed_of,
)
from ureplicator_worker.sql.tables import SCHEMA

MAX_REASON_CHARACTERS = 300
_OF_ANOTHER_SPARK = re.compile(r"_?(PY)?SPARK_(?!HOME$)")
_CONDITION = re.compile(r"\[[A-Z][A-Z0-9_.]+\] .*")

_SETTINGS = {
    "spark.master": "local[1]",
    "spark.app.name": "ureplicator sql",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000000",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ui.retainedExecutions": "1",
    "spark.ui.retainedJobs": "1",
    "spark.ui.retainedStages": "1",
}
"""One batch of Arrow is one partition, so a round is never divided."""


@dataclass(frozen=True, slots=True)
class Plan:
    """`logical`: as parsed, with ROW. `kept`: None if each round needs a plan of its own."""

    logical: Any
    kept: KeptPlan | None


class SparkSql:
    """Raises PermanentError if Spark does not start, and what registering functions raises."""

    def __init__(self, *, memory_bytes: int, udfs: Sequence[str] = ()) -> None:
        logging.getLogger("py4j").setLevel(
            logging.CRITICAL
        )  # a traceback for each connection at the end
        PySparkLogger.getLogger("SQLQueryContextLogger").disabled = True  # prints whole stacks
        self._scratch = jvm.make_scratch()
        _forget_other_spark()
        try:
            self._driver = self._start(memory_bytes, jvm.find_java())
        except BaseException:
            shutil.rmtree(self._scratch, ignore_errors=True)
            raise
        self._spark = SparkSession(self._driver.context)
        session: Any = self._spark._jsparkSession  # noqa: SLF001
        self._session = session
        self._parser = session.sessionState().sqlParser()
        java: Any = self._spark.sparkContext._jvm  # noqa: SLF001
        self._datasets = java.org.apache.spark.sql.classic.Dataset
        self._plans = java.org.apache.spark.sql.catalyst.plans.logical
        self._to_seq = java.PythonUtils.toSeq
        self._source = self._make_source()
        self._kept_plans = KeptPlans(
            java,
            self._source._jdf,  # noqa: SLF001
            scratch=self._scratch,
            limit_bytes=memory_bytes >> 2,
        )
        for name in udfs:
            module, _, function = name.partition(":")
            getattr(importlib.import_module(module), function)(self._spark)

    def _start(self, memory_bytes: int, java: str) -> jvm.Driver:
        conf = SparkConf(loadDefaults=False).setAll(list(_SETTINGS.items()))
        conf.set("spark.driver.memory", f"{memory_bytes >> 20}m")
        conf.set("spark.driver.maxResultSize", f"{memory_bytes >> 22}m")
        conf.set("spark.local.dir", str(self._scratch))
        options = jvm.java_options(self._scratch, "-XX:+UseSerialGC -XX:+ExitOnOutOfMemoryError")
        conf.set("spark.driver.extraJavaOptions", options)
        return jvm.start_driver(conf, java, scratch=self._scratch)

    def compile(self, text: str) -> Query:
        """Raises QueryRefused, SessionLost."""
        try:
            return self._compile(text)
        except QueryRefused:
            raise
        except (Py4JNetworkError, ConnectionError) as error:
            raise SessionLost(f"its JVM ended: {one_line(error)}") from error
        except Exception as error:  # whatever Spark raises for a query
            raise QueryRefused(one_line(error)) from error

    def _compile(self, text: str) -> Query:
        parsed = self._parser.parsePlan(text)
        check_nodes(map(_kind, _nodes(parsed)), PARSED_NODES)
        for node in _nodes(parsed):
            if _kind(node) == "UnresolvedRelation" and node.name() != VIEW:
                raise QueryRefused(f"there is no {node.name()}: the view is {VIEW}")
        rows = self._with_row(parsed)
        self._source.createOrReplaceTempView(VIEW)
        plan = self._datasets.ofRows(self._session, rows).queryExecution().analyzed()
        check_nodes(map(_kind, _nodes(plan)), ANALYSED_NODES)
        if not plan.subqueriesAll().isEmpty():
            raise QueryRefused("the query is not row by row: it has a subquery")
        leaf = next(node for node in _nodes(plan) if node.children().isEmpty())
        view = {_id(column): column.name() for column in _each(leaf.output())}
        output = [
            Column(
                column.name(),
                column.dataType().catalogString(),
                view.get(_id(column)) == column.name(),
            )
            for column in _each(plan.output())
        ]
        columns = [column for column in output if column.name != ROW]
        check_columns(columns)
        computed = computed_of(columns)
        logical = self._project([f"`{ROW}`", *casts(computed)], rows)
        return Query(
            plan=Plan(logical, self._keep(text, logical)),
            inputs=frozenset(view[id] for id in _references(plan) if id in view) - {ROW},
            passed=passed_of(columns),
            computed=computed,
        )

    def _with_row(self, node: Any) -> Any:
        """The parsed plan with ROW in each projection; a `*` has it already."""
        children = [self._with_row(child) for child in _each(node.children())]
        if children:
            node = node.withNewChildren(self._to_seq(children))
        if _kind(node) != "Project":
            return node
        fields = node.projectList()
        if not any(_kind(field).startswith("UnresolvedStar") for field in _each(fields)):
            fields = fields.appended(self._parser.parseExpression(f"`{ROW}`"))
        return self._plans.Project(fields, children[0])

    def _project(self, expressions: Sequence[str], child: Any) -> Any:
        parsed = [self._parser.parseExpression(expression) for expression in expressions]
        return self._plans.Project(self._to_seq(parsed), child)

    def _keep(self, text: str, logical: Any) -> KeptPlan | None:
        """None also for a plan that Spark does not make: its rounds fail, and so does each record."""
        try:
            execution = self._datasets.ofRows(self._session, logical).queryExecution()
            return self._kept_plans.keep(text, execution)
        except (Py4JNetworkError, ConnectionError):
            raise
        except Exception:  # whatever Spark raises for a query
            return None

    def _make_source(self) -> DataFrame:
        """The view without rows of a round, as an RDD of one partition."""
        row = pa.Table.from_arrays([pa.nulls(1, column.type) for column in SCHEMA], schema=SCHEMA)
        frame: Any = self._spark.createDataFrame(row)._jdf  # noqa: SLF001
        rows = frame.queryExecution().toRdd()
        source = self._session.internalCreateDataFrame(rows, frame.schema(), False)
        return DataFrame(source, self._spark)

    def evaluate(self, query: Query, table: pa.Table) -> pa.Table:
        """Rows of the result. Raises QueryFailed, SessionLost."""
        try:
            plan: Plan = query.plan
            if plan.kept is not None:
                return self._kept_plans.evaluate(plan.kept, table)
            self._spark.createDataFrame(table).createOrReplaceTempView(VIEW)
            frame = self._datasets.ofRows(self._session, plan.logical)
            return DataFrame(frame, self._spark).toArrow()
        except QueryFailed:
            raise
        except (Py4JNetworkError, ConnectionError, EOFError) as error:
            raise SessionLost(f"its JVM ended: {one_line(error)}") from error
        except Exception as error:  # whatever Spark raises for a round
            if not self.alive:
                raise SessionLost("its JVM ended; memory_mib may be too small") from error
            raise QueryFailed(one_line(error)) from error

    @property
    def alive(self) -> bool:
        return self._driver.process.poll() is None

    def close(self) -> None:
        """End the JVM. It ends with this process in any case, when its standard input closes."""
        self._driver.kill()
        shutil.rmtree(self._scratch, ignore_errors=True)


def _forget_other_spark() -> None:
    """The process may have been forked by a task of Spark, whose variables are not for this session.

    SPARK_HOME is: pyspark is then imported from the archives there, and finds no JVM beside itself.
    """
    for name in [name for name in os.environ if _OF_ANOTHER_SPARK.match(name)]:
        del os.environ[name]
    os.environ["PYSPARK_PYTHON"] = sys.executable


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _id(attribute: Any) -> int:
    return int(attribute.exprId().id())


def _each(sequence: Any) -> Iterator[Any]:
    for index in range(sequence.size()):
        yield sequence.apply(index)


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    for child in _each(plan.children()):
        yield from _nodes(child)


def _references(plan: Any) -> Iterator[int]:
    """Attributes that expressions compute with: those that a projection only passes on are not."""
    for node in _nodes(plan):
        if _kind(node) not in ("Project", "Filter", "Generate"):
            continue
        for expression in _each(node.expressions()):
            if not (_kind(node) == "Project" and _kind(expression) == "AttributeReference"):
                for reference in _each(expression.references().toSeq()):
                    yield _id(reference)


def one_line(error: BaseException) -> str:
    """Spark's condition and message, of hundreds of lines."""
    text = str(error)
    if reason := python_reason(text):
        return " ".join(reason.split())[:MAX_REASON_CHARACTERS]
    found = _CONDITION.search(text)
    first = (text.strip().splitlines() or [type(error).__name__])[0]
    line = found[0] if found else cause_of(text) or first
    return line.strip(" ;")[:MAX_REASON_CHARACTERS]
