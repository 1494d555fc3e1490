"""A checkpoint of Structured Streaming, made at the source, goes on at a target with the same offsets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ureplicator_testkit.copier.lane import RealLane
from ureplicator_testkit.copier.owners import SAME, Takeover
from ureplicator_testkit.records.topics import read_all

pytestmark = pytest.mark.timeout(300)

STREAM = """
import json, sys
from pyspark.sql import SparkSession
bootstrap, topic, checkpoint, out = sys.argv[1:]
settings = {
    "spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1", "spark.ui.enabled": "false",
    "spark.driver.memory": "512m", "spark.sql.shuffle.partitions": "1",
}
spark = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
options = {
    "kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest",
    "maxOffsetsPerTrigger": "200",
}

def keep(frame, id):
    rows = [[row.partition, row.offset, row.value.decode()] for row in frame.collect()]
    with open(out, "a") as file:
        file.write(json.dumps([id, rows]) + "\\n")

rows = spark.readStream.format("kafka_batches").options(**options).load()
query = rows.writeStream.foreachBatch(keep).option("checkpointLocation", checkpoint)
query.trigger(availableNow=True).start().awaitTermination()
spark.stop()
"""
TURNS = 3
Batches = list[tuple[int, list[list[int | str]]]]
"""Number of each batch, and partition, offset and value of its records."""


def streamed(folder: Path, bootstrap: str, topic: str) -> Batches:
    """Records that a stream reads until it has read all."""
    out = folder / "out"
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    command = [sys.executable, "-c", STREAM, bootstrap, topic, str(folder / "checkpoint"), str(out)]
    ended = subprocess.run(  # noqa: S603
        command, capture_output=True, text=True, check=False, env=environment
    )
    assert ended.returncode == 0, ended.stderr[-5_000:]
    batches = [json.loads(line) for line in out.read_text().splitlines()]
    out.unlink()
    return [(number, rows) for number, rows in batches]


def test_a_stream_goes_on_with_other_bootstrap_servers_alone(
    lane: RealLane, tmp_path: Path
) -> None:
    """A batch that was not committed at the source is read again at the target, the same."""
    owners = Takeover(lane)
    owners.make(1)
    for turn in range(TURNS):
        lane.fill_in_turn(turn)
    before = streamed(tmp_path, lane.source.bootstrap, lane.topic)
    for turn in range(TURNS, 2 * TURNS):
        lane.fill_in_turn(turn)
    owners.finish(settings=SAME)
    last, _ = before[-1]
    assert last > 0
    for path in (tmp_path / "checkpoint" / "commits").glob(f"*{last}*"):
        path.unlink()
    behind = streamed(tmp_path, lane.target.bootstrap, lane.topic)
    assert behind[0] == before[-1]
    (log,) = read_all(lane.source.bootstrap, lane.topic).values()
    found = [row for _, rows in (*before[:-1], *behind) for row in rows]
    assert found == [[0, row.offset, (row.value or b"").decode()] for row in log]
