"""A copy by Structured Streaming: micro-batches of `kafka_batches`, produced by librdkafka in the tasks.

Spark's own source and sink for Kafka are a jar that pyspark does not have, so the data source of this project
reads instead. A micro-batch has all that is there, one task a partition; its end is its checkpoint, so each
record is copied at least once. Key, value, headers, time and partition stay.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaError, Message, Producer
from pyspark.sql import DataFrame, SparkSession

from ureplicator_testkit.records.topics import QUIET
from ureplicator_worker.kafka_batches.source import NAME

SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
PRODUCER = {
    "acks": "all",
    "enable.idempotence": True,
    "batch.size": 524_288,
    "linger.ms": 20,
    "queue.buffering.max.kbytes": 131_072,
    **QUIET,
}
"""Properties as of the tuned MirrorMaker 2."""
FLUSH_S = 120.0
POLL_EVERY = 1_000
_errors: list[KafkaError] = []


def main() -> None:
    source, target, topics, codec, checkpoint = sys.argv[1:]
    os.environ["PYSPARK_PYTHON"] = sys.executable  # it has the data source, other Pythons do not
    builder: Any = SparkSession.builder
    spark: SparkSession = builder.master("local[1]").config(map=SETTINGS).getOrCreate()
    options = {
        "kafka.bootstrap.servers": source,
        "subscribe": topics,
        "startingOffsets": "earliest",
        "includeHeaders": "true",
    }
    rows = spark.readStream.format(NAME).options(**options).load()
    send = functools.partial(sent, target=target, codec=codec)

    def copy(frame: DataFrame, _: int) -> None:
        frame.mapInArrow(send, "records long").collect()

    stream = rows.writeStream.foreachBatch(copy).option("checkpointLocation", checkpoint)
    stream.start().awaitTermination()


def sent(batches: Iterator[pa.RecordBatch], *, target: str, codec: str) -> Iterator[pa.RecordBatch]:
    """Produce the rows of a task; their number, once all are acknowledged."""
    producer = producer_of(target, codec)
    records = 0
    for batch in batches:
        records += _produce(producer, batch)
    if producer.flush(FLUSH_S) or _errors:
        raise RuntimeError(f"not every record was produced: {_errors[:1]}")
    yield pa.RecordBatch.from_pydict({"records": [records]})


def _produce(producer: Producer, batch: pa.RecordBatch) -> int:
    names = ("topic", "partition", "key", "value", "headers")
    columns = [batch.column(name).to_pylist() for name in names]
    times_us = batch.column("timestamp").cast(pa.int64()).to_pylist()
    for number, (topic, partition, key, value, headers, time_us) in enumerate(
        zip(*columns, times_us, strict=True)
    ):
        if number % POLL_EVERY == 0:
            producer.poll(0)
        pairs = [(header["key"], header["value"]) for header in headers or ()]
        record = {"partition": partition, "headers": pairs, "timestamp": time_us // 1_000}
        while True:
            try:
                producer.produce(topic, value, key, **record)
                break
            except BufferError:
                producer.poll(0.05)
    return len(times_us)


@functools.cache
def producer_of(target: str, codec: str) -> Producer:
    """One in each Python process of Spark, which has many tasks."""
    settings = {"bootstrap.servers": target, "compression.type": codec, **PRODUCER}
    return Producer({**settings, "on_delivery": _delivered})


def _delivered(error: KafkaError | None, _: Message) -> None:
    if error is not None:
        _errors.append(error)
