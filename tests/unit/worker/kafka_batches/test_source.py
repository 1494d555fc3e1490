"""The data source, called as Spark's processes call it: pickled, and with their checks of what it returns."""

import json
import socket
import struct
from collections.abc import Iterator, Mapping
from functools import partial
from io import BytesIO
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.datasource import CaseInsensitiveDict, EqualTo, Filter, InputPartition
from pyspark.sql.streaming import python_streaming_source_runner as runner
from pyspark.sql.types import LongType, StringType, StructField, StructType
from pyspark.sql.worker.plan_data_source_read import records_to_arrow_batches

from pyspark_ureplicator import DefaultSource
from ureplicator_common.errors import ConfigurationError
from ureplicator_common.kafka.client import Broker
from ureplicator_testkit.kafka.clients import MemoryCluster
from ureplicator_testkit.kafka.memory_kafka import MemoryKafka
from ureplicator_testkit.kafka.pumped_socket import PumpedSocket
from ureplicator_testkit.records import batches
from ureplicator_worker.kafka_batches import source
from ureplicator_worker.kafka_batches.logs import Logs
from ureplicator_worker.kafka_batches.losses import DataLost
from ureplicator_worker.kafka_batches.options import Options
from ureplicator_worker.kafka_batches.source import KafkaBatches
from ureplicator_worker.records.range_reader import RangeReader

OPTIONS = {"kafka.bootstrap.servers": "a:1", "subscribe": "t"}
NARROW = StructType([StructField("offset", LongType()), StructField("topic", StringType())])


class Site:
    """Topic t of two partitions in memory, with ten records each, and readers of it."""

    def __init__(self) -> None:
        self.kafka = MemoryKafka("A", {"t": 2})
        for log in self.kafka.logs.values():
            log.put(batches.batch(4), batches.batch(6))

    def open_logs(self, options: Options) -> Logs:
        return Logs(MemoryCluster(self.kafka), options)

    def connect(self, broker: Broker) -> tuple[socket.socket, Mapping[int, int]]:
        connection = PumpedSocket(self.kafka, self.kafka.connect(broker.node_id))
        return cast(socket.socket, connection), self.kafka.newest

    def read_range(self, *, cluster: Mapping[str, str], **where: Any) -> Iterator[pa.RecordBatch]:
        client = MemoryCluster(self.kafka)
        client.pause = lambda delay_s: None
        reader = RangeReader(client, **where, open_connection=self.connect)
        try:
            yield from reader.batches()
        finally:
            reader.close()


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    site = Site()
    monkeypatch.setattr(source, "open_logs", site.open_logs)
    monkeypatch.setattr(source, "read_range", site.read_range)
    yield site
    site.kafka.close()


def shipped(sent: Any) -> Any:
    """An object as it comes out in another process."""
    spark: Any = cast(Any, CloudPickleSerializer)()
    return spark.loads(spark.dumps(sent))


def made(**options: str) -> KafkaBatches:
    return cast(KafkaBatches, shipped(DefaultSource(CaseInsensitiveDict(OPTIONS | options))))


def offsets_of(
    reader: Any, partitions: list[InputPartition], schema: StructType
) -> list[list[int]]:
    """Offsets that each task reads, after Spark's check of the columns."""
    found = []
    for partition in partitions:
        read = records_to_arrow_batches(reader.read(partition), 100, schema, made())
        found.append([offset for batch in read for offset in batch.column("offset").to_pylist()])
    return found


@pytest.mark.parametrize("headers", ["true", "false"])
def test_a_batch(site: Site, headers: str) -> None:
    made_source = made(includeHeaders=headers)
    schema = made_source.schema()
    assert len(schema) == (8 if headers == "true" else 7)
    reader = shipped(made_source.reader(schema))
    partitions = shipped(reader.partitions())
    assert offsets_of(reader, partitions, schema) == [list(range(10))] * 2


def test_selected_columns(site: Site) -> None:
    reader = made().reader(NARROW)
    partitions = cast(list[InputPartition], reader.partitions())
    assert offsets_of(reader, partitions, NARROW) == [list(range(10))] * 2
    other = StructType([StructField("offset", StringType())])
    with pytest.raises(ConfigurationError, match="no column offset:string"):
        made().reader(other)


@pytest.mark.parametrize("lenient", ["true", "false"])
def test_a_slow_remote_read_loses_nothing(site: Site, lenient: str) -> None:
    """Nothing is lost whether a loss would be an error or not."""
    site.kafka.remote_ms = dict.fromkeys(site.kafka.logs, 4_000)
    site.kafka.throttled_fetches.append(1_000)
    reader = made(failOnDataLoss=lenient).reader(NARROW)
    partitions = cast(list[InputPartition], reader.partitions())
    assert offsets_of(reader, partitions, NARROW) == [list(range(10))] * 2


def test_a_range_in_parts(site: Site) -> None:
    some = '{"t": {"0": 2, "1": -1}}'
    reader = made(startingOffsets=some, minPartitions="3").reader(NARROW)
    partitions = cast(list[InputPartition], reader.partitions())
    assert offsets_of(reader, partitions, NARROW) == [[2, 3], [4, 5, 6], [7, 8, 9]]


def test_nothing_to_read(site: Site) -> None:
    """Spark makes a task without a range of it."""
    reader = made(startingOffsets="latest").reader(NARROW)
    assert reader.partitions() == []
    assert offsets_of(reader, [InputPartition(None)], NARROW) == [[]]


def test_an_end_that_is_not_reached(site: Site) -> None:
    reader = made(endingOffsets='{"t": {"0": 2, "1": 11}}').reader(NARROW)
    with pytest.raises(ConfigurationError, match="t/1 is committed up to offset 10 only"):
        reader.partitions()


def test_filters(site: Site) -> None:
    reader = made(pushFilters="true").reader(NARROW)
    filters: list[Filter] = [EqualTo(("partition",), 1), EqualTo(("offset",), 6)]
    assert list(reader.pushFilters(filters)) == filters
    reader = shipped(reader)
    partitions = cast(list[InputPartition], reader.partitions())
    assert offsets_of(reader, partitions, NARROW) == [[6]]


def test_what_is_gone_before_a_task_reads_it(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "earliest", lambda **_: {("t", 0): 4})
    strict, lenient = made().reader(NARROW), made(failOnDataLoss="false").reader(NARROW)
    partitions = cast(list[InputPartition], strict.partitions())[:1]
    site.kafka.logs["t", 0].start = 4
    with pytest.raises(DataLost, match="t/0, offset 0 is not in the log"):
        offsets_of(strict, partitions, NARROW)
    assert offsets_of(lenient, partitions, NARROW) == [[4, 5, 6, 7, 8, 9]]


def called(function: Any, *texts: Any) -> Any:
    """Messages that Spark's process of a stream sends back to it."""
    sent = b"".join(struct.pack(">i", len(text)) + text for text in _encoded(texts))
    out = BytesIO()
    function(infile=BytesIO(sent), outfile=out) if texts else function(outfile=out)
    (size,) = struct.unpack(">i", out.getvalue()[:4])
    return json.loads(out.getvalue()[4:]) if out.getvalue()[4:] else size


def _encoded(texts: tuple[Any, ...]) -> list[bytes]:
    return [json.dumps(text).encode() for text in texts]


def test_a_stream(site: Site) -> None:
    reader = made(startingOffsets="earliest", maxOffsetsPerTrigger="8").streamReader(NARROW)
    both = runner.SUPPORTS_ADMISSION_CONTROL | runner.SUPPORTS_TRIGGER_AVAILABLE_NOW
    assert called(partial(runner.check_support_func, reader)) == both
    limit = called(partial(runner.get_default_read_limit_func, reader))
    assert limit == {"_type": "ReadMaxRows", "max_rows": 8}
    latest = partial(runner.latest_offset_admission_control_func, reader)
    start = called(partial(runner.initial_offset_func, reader))
    found: list[list[list[int]]] = []
    while (end := called(latest, start, limit)) != start:
        partitions = reader.partitions(start, end)
        found.append(offsets_of(shipped(made().streamReader(NARROW)), list(partitions), NARROW))
        start = end
    assert found == [
        [],
        [[0, 1, 2, 3], [0, 1, 2, 3]],
        [[4, 5, 6, 7], [4, 5, 6, 7]],
        [[8, 9], [8, 9]],
    ]
    assert called(partial(runner.report_latest_offset_func, reader)) == {"t": {"0": 10, "1": 10}}
    reader.stop()


def test_a_stream_of_what_is_available_now(site: Site) -> None:
    reader = made(startingOffsets="earliest").streamReader(NARROW)
    assert called(partial(runner.prepare_for_trigger_available_now_func, reader)) == 0
    site.kafka.logs["t", 1].put(batches.batch(1))
    latest = partial(runner.latest_offset_admission_control_func, reader)
    every = {"_type": "ReadAllAvailable"}
    first = called(latest, {}, every)
    assert called(latest, first, every) == {"t": {"0": 10, "1": 10}}
    reader.stop()
