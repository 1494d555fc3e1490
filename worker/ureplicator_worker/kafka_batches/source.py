"""Interface to Spark: the data source `kafka_batches`, its batch reader and its stream reader.

Spark makes these objects in processes of its own, of the driver for planning and of executors for reading,
so they are pickled and hold nothing but options. Each task reads one range (`records.range_reader`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ureplicator_common.errors import ConfigurationError
from ureplicator_common.kafka.client import open_client
from ureplicator_worker.kafka_batches.filters import Wanted, wanted
from ureplicator_worker.kafka_batches.logs import Logs
from ureplicator_worker.kafka_batches.losses import present, report_loss
from ureplicator_worker.kafka_batches.options import Options, read_options
from ureplicator_worker.kafka_batches.planning import (
    OffsetRange,
    from_json,
    ranges_between,
    split,
    to_json,
)
from ureplicator_worker.kafka_batches.stream import StreamProgress
from ureplicator_worker.records.errors import OffsetOutOfRange
from ureplicator_worker.records.fetch_connection import CLIENT_ID
from ureplicator_worker.records.offsets import earliest
from ureplicator_worker.records.range_reader import read_range

NAME = "kafka_batches"
HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
COLUMNS = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
        StructField("headers", ArrayType(HEADER)),
    ]
)

logger = logging.getLogger(__name__)


class KafkaBatches(DataSource):
    """Options and columns are those of Spark's Kafka source.

    A schema that is given selects some of the columns; only these are handed to Spark.
    """

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        headers = self.options.get("includeheaders", "false").strip().lower() == "true"
        return COLUMNS if headers else StructType(COLUMNS.fields[:-1])

    def reader(self, schema: StructType) -> DataSourceReader:
        options = read_options(self.options, streaming=False)
        reader = FilteredReader if options.push_filters else BatchReader
        return reader(options, columns(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return StreamReader(read_options(self.options, streaming=True), columns(schema))


def columns(schema: StructType) -> list[str]:
    """Names of the columns to read. Raises ConfigurationError for others than the source has."""
    known = {field.name: field.dataType for field in COLUMNS.fields}
    for field in schema.fields:
        if known.get(field.name) != field.dataType:
            raise ConfigurationError(f"{NAME} has no column {field.simpleString()}")
    return [field.name for field in schema.fields]


class RangePartition(InputPartition):
    """The range of one task."""

    def __init__(self, range: OffsetRange) -> None:
        super().__init__(range)


class BatchReader(DataSourceReader):
    def __init__(self, options: Options, columns: list[str]) -> None:
        self._options = options
        self._columns = columns
        self._wanted = Wanted()

    def partitions(self) -> list[InputPartition]:
        options, wanted = self._options, self._wanted
        with closing(open_logs(options)) as logs:
            keys = logs.all_partitions()
            start, end = logs.at(options.start, keys), logs.at(options.end, keys)
            self._check_ends(logs, end)
            keys = frozenset(filter(wanted.partition, keys))
            cut = map(wanted.cut, ranges_between(start, {key: end[key] for key in keys}))
            ranges = [range_ for range_ in cut if range_.size > 0]
            first = logs.first((range_.topic, range_.partition) for range_ in ranges)
            if wanted.from_ms is not None:
                from_offsets = logs.at_times(dict.fromkeys(first, wanted.from_ms))
                ranges = ranges_between(
                    {key: max(from_offsets[key], range_.start) for key, range_ in _by_key(ranges)},
                    {key: range_.end for key, range_ in _by_key(ranges)},
                )
        parts = split(
            present(options, ranges, first),
            min_partitions=options.min_partitions,
            max_records=options.max_records_per_partition,
        )
        return [RangePartition(range_) for range_ in parts]

    def _check_ends(self, logs: Logs, end: dict[tuple[str, int], int]) -> None:
        """Raises ConfigurationError for an end that the log has not reached."""
        if not self._options.end.offsets:
            return
        last = logs.last(end)
        for key in sorted(end):
            if end[key] > last[key]:
                raise ConfigurationError(
                    f"option endingoffsets: {key[0]}/{key[1]} is committed up to offset {last[key]} only"
                )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a range. Without partitions Spark starts one task, without a range."""
        if isinstance(partition, RangePartition):
            yield from read_records(self._options, partition.value, self._columns)


class FilteredReader(BatchReader):
    """Spark refuses a reader with this method unless `spark.sql.python.filterPushdown.enabled` is true."""

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:
        self._wanted = wanted(filters)
        return filters


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: Options, columns: list[str]) -> None:
        self._options = options
        self._columns = columns
        self._opened: tuple[Logs, StreamProgress] | None = None

    @property
    def _progress(self) -> StreamProgress:
        """The progress, opened where it is used first: a reader that Spark pickles has none."""
        if self._opened is None:
            logs = open_logs(self._options)
            self._opened = logs, StreamProgress(self._options, logs)
        return self._opened[1]

    def initialOffset(self) -> dict[str, Any]:
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = self._options.max_offsets_per_trigger
        return ReadMaxRows(limit) if limit else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._progress.set_target()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else 0
        return to_json(self._progress.next(from_json(start), limit=most))

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return to_json(self._progress.latest) or None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        ranges = self._progress.ranges(from_json(start), from_json(end))
        return [RangePartition(range_) for range_ in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_records(self._options, partition.value, self._columns)

    def stop(self) -> None:
        if self._opened is not None:
            self._opened[0].close()
            self._opened = None


def open_logs(options: Options) -> Logs:
    return Logs(open_client("", options.cluster, client_id=CLIENT_ID), options)


def _by_key(ranges: list[OffsetRange]) -> Iterator[tuple[tuple[str, int], OffsetRange]]:
    return (((range_.topic, range_.partition), range_) for range_ in ranges)


def read_records(
    options: Options, wanted: OffsetRange, columns: list[str]
) -> Iterator[pa.RecordBatch]:
    """The records of a range. What retention removes meanwhile is lost, or passed over."""
    start = wanted.start
    while start < wanted.end:
        batches = read_range(
            cluster=options.cluster,
            topic=wanted.topic,
            partition=wanted.partition,
            start=start,
            end=wanted.end,
            timeout_s=options.timeout_s,
        )
        try:
            for batch in batches:
                yield batch.select(columns)
                start = batch.column("offset")[-1].as_py() + 1
            return
        except OffsetOutOfRange as error:
            report_loss(options, str(error))
            key = (wanted.topic, wanted.partition)
            first = earliest(cluster=options.cluster, partitions=[key])[key]
            if first <= start:
                raise
            start = first
