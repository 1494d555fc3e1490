"""`kafka_batches` in a notebook's Spark: what it reads is what a consumer of committed records reads.

One Spark serves all tests, in a process of its own, which runs cells as a notebook does.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME

from ureplicator_testkit.docs.samples import blocks
from ureplicator_testkit.records.comparison import ConsumedRecord
from ureplicator_testkit.records.emptied import EmptiedFetches
from ureplicator_testkit.records.topics import (
    add_partitions,
    create_topic,
    delete_records,
    produce,
    produce_in_transaction,
    read_all,
    sample_records,
    transaction,
)
from ureplicator_testkit.servers.clusters import KafkaCluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
END_S = 30
KERNEL = """
import json, sys, traceback
from pyspark.sql import SparkSession

replies, sys.stdout = sys.stdout, sys.stderr
settings = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.ui.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.python.filterPushdown.enabled": "true",
}
spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
names = {"spark": spark}
for line in sys.stdin:
    try:
        exec(json.loads(line), names)
        reply = {"result": names.pop("result", None)}
    except Exception:
        reply = {"error": traceback.format_exc()}
        traceback.print_exc()
    replies.write(json.dumps(reply) + "\\n")
    replies.flush()
spark.stop()
"""
SETUP = """
topic = {topic!r}
options = {{"kafka.bootstrap.servers": {bootstrap!r}, "subscribe": topic}}

def read(**more):
    return spark.read.format("kafka_batches").options(**options, **more).load()

def shown(field):
    return None if field is None else bytes(field).hex()

def offsets(frame):
    return sorted([row.partition, row.offset] for row in frame.select("partition", "offset").collect())

def stream(checkpoint, batches, **more):
    def keep(frame, id):
        batches.setdefault(str(id), []).append(offsets(frame))
    frames = spark.readStream.format("kafka_batches").options(**options, **more).load()
    query = frames.writeStream.foreachBatch(keep).option("checkpointLocation", checkpoint)
    query = query.trigger(availableNow=True).start()
    assert query.awaitTermination(60)
"""


class Notebook:
    """Cells share their names. What a cell assigns to `result` comes back."""

    def __init__(self, log: Path) -> None:
        self._log = log.open("w")
        self._process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-c", KERNEL],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            start_new_session=True,
            env={
                **os.environ,
                "PYSPARK_PYTHON": sys.executable,
                "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            },
        )

    def run(self, cell: str) -> Any:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(cell) + "\n")
        self._process.stdin.flush()
        reply = json.loads(self._process.stdout.readline())
        if "error" in reply:
            raise AssertionError(reply["error"])
        return reply["result"]

    def close(self) -> None:
        try:
            self._process.communicate(timeout=END_S)
        finally:
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.communicate()
            self._log.close()


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notebook]:
    notebook = Notebook(tmp_path_factory.mktemp("notebook") / "spark.log")
    yield notebook
    notebook.close()


@pytest.fixture
def notebook(spark: Notebook, source_cluster: KafkaCluster, source_topic: str) -> Notebook:
    """Spark with a topic of four partitions."""
    spark.run(SETUP.format(topic=source_topic, bootstrap=source_cluster.bootstrap))
    return spark


def fill(bootstrap: str, topic: str) -> None:
    """Batches of every codec, with an aborted transaction before each, and a committed one at the end."""
    for number, codec in enumerate(CODECS):
        records = sample_records(120, partitions=4, seed=number)
        transact(bootstrap, topic, codec=codec, commit=False)
        produce(bootstrap, topic, records, codec=codec)
    transact(bootstrap, topic, codec="zstd", commit=True)


def transact(bootstrap: str, topic: str, *, commit: bool, codec: str = "none") -> None:
    records = sample_records(40, partitions=4)
    produce_in_transaction(
        bootstrap, topic, records, transactional_id=f"{topic}-1", codec=codec, commit=commit
    )


def row_of(partition: int, record: ConsumedRecord) -> list[Any]:
    headers = [[name, shown(value)] for name, value in record.headers]
    kinds = {TIMESTAMP_CREATE_TIME: 0, TIMESTAMP_LOG_APPEND_TIME: 1}
    return [
        partition,
        record.offset,
        shown(record.key),
        shown(record.value),
        headers or None,
        record.timestamp,
        kinds[record.timestamp_type],
    ]


def shown(field: bytes | None) -> str | None:
    return None if field is None else field.hex()


def places(log: Mapping[int, tuple[ConsumedRecord, ...]]) -> list[list[int]]:
    return [[number, record.offset] for number in sorted(log) for record in log[number]]


def test_a_batch_holds_what_a_consumer_reads(
    notebook: Notebook, source_cluster: KafkaCluster, source_topic: str
) -> None:
    fill(source_cluster.bootstrap, source_topic)
    log = read_all(source_cluster.bootstrap, source_topic)
    found = notebook.run("""
frame = read(includeHeaders="true", minPartitions="7", startingOffsets="earliest")
assert frame.rdd.getNumPartitions() >= 7
rows = frame.selectExpr("*", "unix_millis(timestamp) AS ms").orderBy("partition", "offset").collect()
assert {row.topic for row in rows} == {topic}
result = [
    [
        row.partition, row.offset, shown(row.key), shown(row.value),
        row.headers and [[header.key, shown(header.value)] for header in row.headers],
        row.ms, row.timestampType,
    ]
    for row in rows
]
""")
    assert found == [row_of(number, record) for number in sorted(log) for record in log[number]]


def test_ranges_times_columns_and_filters(
    notebook: Notebook, source_cluster: KafkaCluster, source_topic: str
) -> None:
    records = sample_records(400, partitions=4)
    produce(source_cluster.bootstrap, source_topic, records)
    found = notebook.run("""
begin = '{"%s": {"0": 10, "1": -2, "2": -1, "3": 95}}' % topic
end = '{"%s": {"0": 12, "1": 3, "2": -1, "3": -1}}' % topic
ranges = read(startingOffsets=begin, endingOffsets=end)
wanted = read(pushFilters="true").where("partition IN (1, 2) AND offset >= 98")
narrow = spark.read.format("kafka_batches").schema("offset long, key binary").options(**options).load()
result = [
    offsets(ranges), offsets(wanted), wanted.rdd.getNumPartitions(),
    [narrow.columns, narrow.count()], read().where("offset < 0").count(),
]
""")
    assert found == [
        [[0, 10], [0, 11], [1, 0], [1, 1], [1, 2], *([3, n] for n in range(95, 100))],
        [[1, 98], [1, 99], [2, 98], [2, 99]],
        2,
        [["offset", "key"], 400],
        0,
    ]


def test_a_stream_reads_each_offset_once(
    notebook: Notebook, source_cluster: KafkaCluster, source_topic: str, tmp_path: Path
) -> None:
    """Records that come between its runs are read, too; and a batch that was not committed is read again, the
    same."""
    bootstrap, checkpoint = source_cluster.bootstrap, tmp_path / "checkpoint"
    run = f"stream({str(checkpoint)!r}, batches, startingOffsets='earliest', maxOffsetsPerTrigger='90')"
    produce(bootstrap, source_topic, sample_records(200, partitions=4))
    first = notebook.run(f"batches = {{}}\n{run}\nresult = batches")
    assert len(first) >= 3
    assert max(len(rows) for (rows,) in first.values()) <= 90
    transact(bootstrap, source_topic, commit=False)
    add_partitions(bootstrap, source_topic, 5)
    produce(bootstrap, source_topic, sample_records(100, partitions=5))
    last = max(first, key=int)
    for path in (checkpoint / "commits").glob(f"*{last}*"):
        path.unlink()
    second = notebook.run(f"{run}\nresult = batches")
    assert second[last] == first[last] * 2
    found = sorted(row for runs in second.values() for row in runs[0])
    assert found == places(read_all(bootstrap, source_topic))


@pytest.mark.parametrize("lenient", ["true", "false"])
def test_responses_without_batches_lose_nothing(
    spark: Notebook,
    source_cluster: KafkaCluster,
    source_topic: str,
    lenient: str,
    tmp_path: Path,
) -> None:
    """Four fetches of a batch and as many of a stream are answered as by a broker whose read of tiered
    storage is late; a transaction that is open and a hole before it are behind the records."""
    bootstrap = source_cluster.bootstrap
    port = int(bootstrap.rpartition(":")[2])
    produce(bootstrap, source_topic, sample_records(200, partitions=4))
    transact(bootstrap, source_topic, commit=False)
    with (
        EmptiedFetches(port, left=4) as relay,
        transaction(bootstrap, transactional_id=f"{source_topic}-2") as open_one,
    ):
        for number in range(4):
            open_one.produce(source_topic, b"of the open transaction", partition=number)
        assert not open_one.flush(END_S)
        spark.run(SETUP.format(topic=source_topic, bootstrap=relay.address))
        found = spark.run(f"result = offsets(read(failOnDataLoss={lenient!r}))")
        assert (relay.left, len(found)) == (0, 200)
        relay.left = 4
        run = f"stream({str(tmp_path / 'c')!r}, batches, startingOffsets='earliest')"
        runs = spark.run(f"batches = {{}}\n{run}\nresult = batches")
        assert relay.left == 0
    assert sorted(row for rows in runs.values() for row in rows[0]) == found
    assert found == [[number, n] for number in range(4) for n in range(50)]


def test_a_stream_that_begins_at_the_end(
    notebook: Notebook, source_cluster: KafkaCluster, source_topic: str, tmp_path: Path
) -> None:
    """It is stopped before it has read anything, and misses nothing of what comes meanwhile."""
    bootstrap = source_cluster.bootstrap
    run = f"batches = {{}}\nstream({str(tmp_path / 'c')!r}, batches)\n"
    produce(bootstrap, source_topic, sample_records(40, partitions=4))
    assert notebook.run(run + "result = sum(batches.values(), [])") in ([], [[]])
    produce(bootstrap, source_topic, sample_records(4, partitions=4))
    assert notebook.run(run + "result = sum(batches.values(), [])") == [
        [[number, 10] for number in range(4)]
    ]


def test_records_that_are_gone(
    notebook: Notebook, source_cluster: KafkaCluster, source_topic: str
) -> None:
    bootstrap = source_cluster.bootstrap
    produce(bootstrap, source_topic, sample_records(40, partitions=4))
    delete_records(bootstrap, source_topic, {0: 4})
    begin = 'startingOffsets=\'{"%s": {"0": 0, "1": 8, "2": 8, "3": 8}}\' % topic'
    with pytest.raises(AssertionError, match="0: offsets 0 to 3 are gone"):
        notebook.run(f"read({begin}).count()")
    assert notebook.run(f"result = read({begin}, failOnDataLoss='false').count()") == 12


def test_the_samples_of_the_page(
    notebook: Notebook, source_cluster: KafkaCluster, source_topic: str, tmp_path: Path
) -> None:
    produce(source_cluster.bootstrap, source_topic, sample_records(400, partitions=4))
    cells = {block.label: block.text for block in blocks() if block.page == "docs/notebooks.md"}
    for old, new in {
        "kafka-1:9092": source_cluster.bootstrap,
        '"subscribe", "orders"': f'"subscribe", "{source_topic}"',
        '"orders"': f'"{tmp_path}/orders"',
        '"orders-checkpoint"': f'"{tmp_path}/checkpoint"',
    }.items():
        cells = {label: cell.replace(old, new) for label, cell in cells.items()}
    batch, stream, filters = (cells[f"notebook: {name}"] for name in ("batch", "stream", "filters"))
    assert notebook.run(f"{batch}\nresult = newest['offset'].tolist()") == list(range(99, 89, -1))
    count = f"spark.read.parquet('{tmp_path}/orders').count()"
    assert notebook.run(f"{stream}\nresult = {count}") == 400
    assert notebook.run(f"{filters}\nresult = some") == 10


def test_more_topics(notebook: Notebook, source_cluster: KafkaCluster, source_topic: str) -> None:
    other = f"{source_topic}-b"
    create_topic(source_cluster.bootstrap, other)
    for topic in (source_topic, other):
        produce(source_cluster.bootstrap, topic, sample_records(10))
    found = notebook.run(f"""
both = spark.read.format("kafka_batches").options(**options).option("subscribe", topic + ",{other}")
one = spark.read.format("kafka_batches").option("kafka.bootstrap.servers", options["kafka.bootstrap.servers"])
result = [
    sorted(row.topic for row in both.load().select("topic").distinct().collect()),
    one.option("assign", '{{"{other}": [0]}}').load().count(),
]
""")
    assert found == [[source_topic, other], 10]
