"""Spark itself: queries that it takes and refuses, and what it makes of the rows of a round."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from ureplicator_testkit.docs.samples import blocks
from ureplicator_testkit.records import batches
from ureplicator_testkit.spark.standalone import spark_home
from ureplicator_worker.copier.record.decoding import StoredRecords
from ureplicator_worker.sql.query import QueryFailed, QueryRefused
from ureplicator_worker.sql.results import Results
from ureplicator_worker.sql.rounds import Round, Task
from ureplicator_worker.sql.session import SparkSql
from ureplicator_worker.sql.tables import table_of

pytestmark = [pytest.mark.timeout(1_200), pytest.mark.usefixtures("quick_java")]

HEADERS = (("h", b"1"), ("null", None))
ROWS: list[batches.Row] = [
    (1_000, b"a", b'{"id": 1, "total": 99.5}', HEADERS),
    (2_000, None, b'{"id": 2, "total": 100}', ()),
    (3_000, b"c", None, ()),
    (4_000, b"", b'{"id": 4, "total": 1e3}', HEADERS),
]


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSql]:
    """Session with the function of the page, too."""
    folder = tmp_path_factory.mktemp("functions")
    page = page_block("sql module: shop_functions.py")
    (folder / "shop_functions.py").write_text(page)
    udfs = ("shop_functions:register", "ureplicator_testkit.copier.sample_udfs:register")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        session = SparkSql(memory_bytes=512 << 20, udfs=udfs)
    yield session
    session._spark.stop()  # its threads end with a process of its own; here other tests follow
    session.close()


def page_block(label: str) -> str:
    (text,) = (
        block.text for block in blocks() if block.page == "docs/sql.md" and block.label == label
    )
    return text


def round_of(rows: list[batches.Row]) -> Round:
    round_ = Round()
    stored = StoredRecords(memoryview(batches.batch(rows)), position=0)
    round_.begin(Task("t", 1, "t", len(rows)), 0)
    for found in stored.read(topic="t", partition=1, position=0):
        round_.add_found(found, stored)
    round_.end(last=True)
    return round_


def result(spark: SparkSql, text: str, rows: list[batches.Row] = ROWS) -> list[batches.Record]:
    """Records for the target, of one partition."""
    query = spark.compile(text)
    round_ = round_of(rows)
    table = spark.evaluate(query, table_of(round_, query.inputs))
    emitted = Results(round_, query, table, partition_count=lambda topic: 3).emitted(
        round_.segments[0]
    )
    assert emitted.failed is None
    return [row for ready in emitted.ready for row in batches.decode(ready.built.data)]


def content(row: batches.Record) -> tuple[Any, ...]:
    return row.timestamp_ms, row.key, row.value, tuple(row.headers)


def test_all_columns_are_the_records_as_they_are(spark: SparkSql) -> None:
    assert [content(row) for row in result(spark, "SELECT * FROM records")] == ROWS
    query = spark.compile("SELECT * FROM records WHERE partition = 1 AND key IS NOT NULL")
    assert query.whole
    assert query.inputs == {"key", "partition"}


def test_the_query_of_the_page(spark: SparkSql) -> None:
    config = yaml.safe_load(page_block("sql config"))
    query = config["routes"][0]["sql"][0]["query"]
    assert [content(row) for row in result(spark, query)] == [ROWS[1], ROWS[3]]
    short = result(spark, "SELECT shorten(CAST(key AS STRING)) AS key, value FROM records")
    assert [row.key for row in short] == [b"a***", None, b"c***", b"***"]


def test_computed_columns(spark: SparkSql) -> None:
    rows = result(
        spark,
        """
        SELECT CAST(xxhash64(key) AS STRING) AS key, shout(CAST(value AS STRING)) AS value,
               array(struct('o' AS key, CAST(CAST(offset AS STRING) AS BINARY) AS value)) AS headers,
               timestamp + INTERVAL 1 SECOND AS timestamp
        FROM (SELECT * FROM records r WHERE timestampType = 0) WHERE element_at(headers, 1).key = 'h'
        """,
    )
    assert [content(row)[2:] for row in rows] == [
        (b'{"ID": 1, "TOTAL": 99.5}', (("o", b"0"),)),
        (b'{"ID": 4, "TOTAL": 1E3}', (("o", b"3"),)),
    ]
    assert [row.timestamp_ms for row in rows] == [2_000, 5_000]
    assert all(row.key is not None and row.key.lstrip(b"-").isdigit() for row in rows)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT key, explode(split(CAST(value AS STRING), ',')) AS value FROM records",
        "SELECT key, word AS value FROM records"
        " LATERAL VIEW explode(split(CAST(value AS STRING), ',')) AS word",
    ],
)
def test_several_results_of_a_record_are_in_order(spark: SparkSql, query: str) -> None:
    rows: list[batches.Row] = [(1, b"1", b"x,y", ()), (1, b"2", b"", ()), (1, b"3", b"z,x", ())]
    found = [(row.key, row.value) for row in result(spark, query, rows)]
    assert found == [(b"1", b"x"), (b"1", b"y"), (b"2", b""), (b"3", b"z"), (b"3", b"x")]


def test_a_round_keeps_the_order_of_many_rows(spark: SparkSql) -> None:
    rows: list[batches.Row] = [(1, b"%d" % number, b"x" * 100, ()) for number in range(20_000)]
    query = (
        "SELECT key, upper(CAST(value AS STRING)) AS value FROM records WHERE crc32(key) % 2 = 0"
    )
    keys = [int(row.key or b"") for row in result(spark, query, rows)]
    assert keys == sorted(keys)
    assert 9_000 < len(keys) < 11_000


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM records",
        "SELECT key, value FROM records WHERE length(value) > 3",
        "SELECT from_json(CAST(value AS STRING), 'id STRING').id AS value FROM records",
        "SELECT key, explode(split(CAST(value AS STRING), ',')) AS value FROM records",
        "SELECT value, timestamp + INTERVAL 1 DAY AS timestamp FROM records",
    ],
)
def test_a_plan_of_rows_alone_is_kept_for_all_rounds(spark: SparkSql, query: str) -> None:
    assert spark.compile(query).plan.kept is not None


@pytest.mark.parametrize(
    "query",
    [
        "SELECT value, uuid() AS key FROM records",
        "SELECT value FROM records WHERE rand() < 2",
        "SELECT value, current_timestamp() AS timestamp FROM records",
        "SELECT value, CAST(current_date() AS TIMESTAMP) AS timestamp FROM records",
        "SELECT value, TIMESTAMP 'now' AS timestamp FROM records",
        "SELECT value FROM records WHERE timestamp < CAST('today' AS DATE)",
        "SELECT shout(CAST(value AS STRING)) AS value FROM records",
    ],
)
def test_each_round_has_a_plan_of_its_own_if_more_than_its_rows_counts(
    spark: SparkSql, query: str
) -> None:
    assert spark.compile(query).plan.kept is None
    result(spark, query)


def test_a_kept_plan_goes_on_after_a_round_that_failed(spark: SparkSql) -> None:
    query = spark.compile(
        "SELECT CAST(CAST(key AS STRING) AS INT) AS partition, value FROM records"
    )
    assert query.plan.kept is not None
    for key in (b"1", b"x", b"2"):
        table = table_of(round_of([(1, key, b"v", ())]), query.inputs)
        if key == b"x":
            with pytest.raises(QueryFailed, match="CAST_INVALID_INPUT"):
                spark.evaluate(query, table)
        else:
            assert spark.evaluate(query, table).column("partition").to_pylist() == [int(key)]


def test_a_function_that_fails_is_named_with_its_place(spark: SparkSql) -> None:
    query = spark.compile("SELECT parsed(CAST(value AS STRING)) AS value FROM records")
    with pytest.raises(QueryFailed, match=r"^json.*JSONDecodeError: .* in sample_udfs.py:\d+$"):
        spark.evaluate(query, table_of(round_of([(1, b"k", b"no JSON", ())]), query.inputs))


def test_results_of_a_kept_plan_that_are_too_large_fail(spark: SparkSql) -> None:
    query = spark.compile(
        "SELECT explode(array_repeat(repeat('x', 10000), 20000)) AS value FROM records"
    )
    assert query.plan.kept is not None
    with pytest.raises(QueryFailed, match="larger than 128 MiB, a quarter of memory_mib"):
        spark.evaluate(query, table_of(round_of(ROWS), query.inputs))


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELEC value FROM records", "[PARSE_SYNTAX_ERROR] Syntax error at or near 'SELEC'"),
        ("SELECT nope AS value FROM records", "[UNRESOLVED_COLUMN.WITH_SUGGESTION]"),
        ("SELECT value FROM other", "there is no other: the view is records"),
        ("SELECT max(value) AS value FROM records", "Aggregate is not supported"),
        ("SELECT max(value) AS value FROM records GROUP BY key", "Aggregate is not supported"),
        ("SELECT a.value FROM records a JOIN records b ON a.key = b.key", "Join is not"),
        ("SELECT value FROM records UNION ALL SELECT key FROM records", "Union is not supported"),
        ("SELECT DISTINCT value FROM records", "Distinct is not supported"),
        ("SELECT value FROM records ORDER BY key", "Sort is not supported"),
        ("SELECT value FROM records LIMIT 3", "GlobalLimit is not supported"),
        ("WITH x AS (SELECT * FROM records) SELECT value FROM x", "With is not supported"),
        ("SELECT value FROM records WHERE key IN (SELECT key FROM records)", "has a subquery"),
        ("SELECT value, row_number() OVER (ORDER BY offset) AS partition FROM records", "Window"),
        ("SELECT from_json(CAST(value AS STRING), 'a INT').a AS value FROM records", "is int, not"),
    ],
)
def test_queries_that_are_refused(spark: SparkSql, query: str, reason: str) -> None:
    with pytest.raises(QueryRefused) as refused:
        spark.compile(query)
    text = str(refused.value)
    assert "\n" not in text
    assert reason in text or text.startswith("[MISSING_GROUP_BY]")


def test_a_failure_is_one_line(spark: SparkSql) -> None:
    with pytest.raises(QueryFailed) as failed:
        result(spark, "SELECT CAST(1 / (offset - 2) AS STRING) AS value FROM records")
    text = str(failed.value)
    assert text.startswith("[DIVIDE_BY_ZERO] Division by zero.")
    assert "\n" not in text


def test_a_session_starts_with_the_environment_of_a_task() -> None:
    """Spark has its tasks import pyspark from archives, in which there is no JVM to start."""
    archives = sorted((spark_home() / "python" / "lib").glob("*.zip"))
    environ = {
        **os.environ,
        "SPARK_HOME": str(spark_home()),
        "PYTHONPATH": os.pathsep.join(map(str, [*archives, *sys.path])),
    }
    code = (
        "import pyspark\n"
        "from ureplicator_worker.sql.session import SparkSql\n"
        "assert '.zip' in pyspark.__file__, pyspark.__file__\n"
        "session = SparkSql(memory_bytes=512 << 20)\n"
        "session.compile('SELECT * FROM records')\n"
        "session.close()\n"
    )
    command = [sys.executable, "-c", code]
    ended = subprocess.run(  # noqa: S603
        command, env=environ, capture_output=True, text=True, timeout=300, check=False
    )
    assert ended.returncode == 0, ended.stderr[-2_000:]
