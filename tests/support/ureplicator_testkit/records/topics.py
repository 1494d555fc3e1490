"""Topics and records for tests: create, produce, read back whole, and compare two clusters.

Clients are created for each call and closed after it, so that no test inherits another's metadata.
What librdkafka cannot express is not offered: its timestamp 0 means now.
"""

import random
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from ureplicator_testkit.records.comparison import Comparison, ConsumedRecord, Headers, compare
from ureplicator_testkit.servers.processes import NotInTimeError, deadline_factor, eventually

RESPONSE_S = 30
QUIET: dict[str, Any] = {"log_level": 0, "allow.auto.create.topics": "false"}
MOVING = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError._DESTROY_BROKER,
        KafkaError._TRANSPORT,
    }
)
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

__all__ = [
    "CODECS",
    "ConsumedRecord",
    "NewRecord",
    "add_partitions",
    "compare_logs",
    "consumed",
    "create_topic",
    "delete_records",
    "delete_topic",
    "offsets",
    "open_consumer",
    "produce",
    "produce_in_transaction",
    "read_all",
    "sample_records",
    "send_one",
    "transaction",
]


@dataclass(frozen=True, slots=True)
class NewRecord:
    """A record to produce; without a timestamp it gets the time of sending."""

    value: bytes | None
    key: bytes | None = None
    partition: int = 0
    headers: Headers = ()
    timestamp: int | None = None


# --- topics ----------------------------------------------------------------------------------


def create_topic(
    bootstrap: str,
    topic: str,
    *,
    partitions: int = 1,
    replication_factor: int = 1,
    config: Mapping[str, str] | None = None,
) -> None:
    """Create a topic and wait until every partition has a leader."""
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    new = NewTopic(topic, partitions, replication_factor, config=dict(config or {}))
    _await_all(admin.create_topics([new]))
    _await_partitions(admin, topic, partitions)


def add_partitions(bootstrap: str, topic: str, total: int) -> None:
    """Grow a topic to this many partitions and wait until each has a leader."""
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    _await_all(admin.create_partitions([NewPartitions(topic, total)]))
    _await_partitions(admin, topic, total)


def delete_topic(bootstrap: str, topic: str) -> None:
    """Delete a topic and wait until no broker lists it."""
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    _await_all(admin.delete_topics([topic]))
    gone = f"{topic} is gone"
    eventually(lambda: topic not in admin.list_topics(timeout=RESPONSE_S).topics, RESPONSE_S, gone)


def delete_records(bootstrap: str, topic: str, before: Mapping[int, int]) -> None:
    """Move the log start of these partitions (partition -> first offset that stays)."""
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    wanted = [TopicPartition(topic, p, offset) for p, offset in before.items()]
    _await_all(admin.delete_records(wanted))


def offsets(
    bootstrap: str, topic: str, *, isolation: str = "read_uncommitted"
) -> dict[int, tuple[int, int]]:
    """Partition -> (log start, end): the high watermark, or with read_committed the last stable."""
    with open_consumer(bootstrap, isolation) as consumer:
        found = {}
        for partition in _partitions_of(consumer, topic):
            where = TopicPartition(topic, partition)
            low_high = eventually(
                lambda: _watermarks(consumer, where),  # noqa: B023
                RESPONSE_S,
                f"the leader of {topic}/{partition} responds",
            )
            assert low_high is not None
            found[partition] = low_high
        return found


def _watermarks(consumer: Consumer, where: TopicPartition) -> tuple[int, int] | None:
    """None while the metadata name a leader that does not know it yet, is not caught up, or is gone."""
    try:
        return consumer.get_watermark_offsets(where, timeout=RESPONSE_S)
    except KafkaException as error:
        if error.args[0].code() not in MOVING:
            raise
        return None


def _await_partitions(admin: AdminClient, topic: str, count: int) -> None:
    def led() -> bool:
        described = admin.describe_topics(TopicCollection([topic]))[topic]
        try:
            partitions = described.result(timeout=RESPONSE_S).partitions
        except KafkaException:
            return False
        return len(partitions) == count and all(p.leader for p in partitions)

    eventually(led, RESPONSE_S, f"{count} partitions of {topic} have leaders")


def _await_all(futures: Mapping[Any, "Future[Any]"]) -> None:
    for future in futures.values():
        future.result(timeout=RESPONSE_S)


# --- producing -------------------------------------------------------------------------------


def produce(
    bootstrap: str,
    topic: str,
    records: Iterable[NewRecord],
    *,
    codec: str = "none",
    settings: Mapping[str, Any] | None = None,
) -> int:
    """Produce idempotently, in order per partition; returns how many were acknowledged."""
    producer = _producer(bootstrap, codec, settings)
    failures: list[KafkaError] = []
    count = _send(producer, topic, records, failures)
    left = producer.flush(RESPONSE_S * deadline_factor())
    if failures or left:
        raise AssertionError(f"not produced to {topic}: {left} not acknowledged, {failures[:3]}")
    return count


@contextmanager
def transaction(
    bootstrap: str, *, transactional_id: str, codec: str = "none", commit: bool = True
) -> Iterator[Producer]:
    """One transaction around the block; aborted when `commit` is false or the block raises."""
    producer = _producer(bootstrap, codec, {"transactional.id": transactional_id})
    producer.init_transactions(RESPONSE_S)
    producer.begin_transaction()
    end = producer.abort_transaction
    try:
        yield producer
        if commit:
            end = producer.commit_transaction
    finally:
        # An abort that overtakes its records is refused as an invalid state (librdkafka 4849).
        producer.flush(RESPONSE_S * deadline_factor())
        end(RESPONSE_S)


def produce_in_transaction(
    bootstrap: str,
    topic: str,
    records: Iterable[NewRecord],
    *,
    transactional_id: str,
    codec: str = "none",
    commit: bool = True,
) -> int:
    """Produce in one transaction, which is then committed or aborted."""
    failures: list[KafkaError] = []
    with transaction(
        bootstrap, transactional_id=transactional_id, codec=codec, commit=commit
    ) as producer:
        return _send(producer, topic, records, failures)


def sample_records(
    count: int, *, partitions: int = 1, seed: int = 0, value_bytes: int = 100
) -> list[NewRecord]:
    """Distinct records with the odd parts of real ones: null and empty parts, headers, old times."""
    dice = random.Random(seed)  # noqa: S311
    return [_sample(index, index % partitions, dice, value_bytes) for index in range(count)]


def _sample(index: int, partition: int, dice: random.Random, value_bytes: int) -> NewRecord:
    key = dice.choice([None, b"", b"key-%d" % index])
    filler = dice.randbytes(dice.randrange(value_bytes + 1))
    value = None if key and dice.random() < 0.1 else b"%d:" % index + filler
    headers: list[Headers] = [(), (("h", b"%d" % index),), (("h", None), ("h", b""), ("ü", b"x"))]
    timestamp = dice.choice([None, 1, 1_600_000_000_000 + index])
    return NewRecord(value, key, partition, dice.choice(headers), timestamp)


def _producer(bootstrap: str, codec: str, settings: Mapping[str, Any] | None) -> Producer:
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "compression.type": codec,
            "linger.ms": 5,
            "queue.buffering.max.messages": 1_000_000,
            **QUIET,
            **(settings or {}),
        }
    )


def _send(
    producer: Producer, topic: str, records: Iterable[NewRecord], failures: list[KafkaError]
) -> int:
    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(error)

    count = 0
    for record in records:
        send_one(producer, topic, record, delivered)
        count += 1
        if count % 1000 == 0:
            producer.poll(0)
    return count


def send_one(producer: Producer, topic: str, record: NewRecord, delivered: Any) -> None:
    """Produce without waiting for more than room in the queue."""
    optional: dict[str, Any] = {}
    if record.timestamp is not None:
        optional["timestamp"] = record.timestamp
    if record.headers:
        optional["headers"] = list(record.headers)
    while True:
        try:
            producer.produce(
                topic,
                record.value,
                record.key,
                record.partition,
                on_delivery=delivered,
                **optional,
            )
            return
        except BufferError:
            producer.poll(0.1)


# --- reading back ----------------------------------------------------------------------------


def read_all(
    bootstrap: str,
    topic: str,
    isolation: str = "read_committed",
    *,
    only: Collection[int] = (),
    since: int = OFFSET_BEGINNING,
    deadline_s: float = 60,
) -> dict[int, tuple[ConsumedRecord, ...]]:
    """Every record of a topic as of now, by partition, from the first that is left or from an offset.

    `only` these partitions; all of them when none is named.
    """
    with open_consumer(bootstrap, isolation) as consumer:
        partitions = [p for p in _partitions_of(consumer, topic) if p in only or not only]
        log: dict[int, list[ConsumedRecord]] = {partition: [] for partition in partitions}
        consumer.assign([TopicPartition(topic, p, since) for p in partitions])
        pending = set(partitions)
        quiet_s = 0.0
        while pending:
            messages = consumer.consume(
                1_000, timeout=0.05
            )  # returns after so many records, or so long
            quiet_s = 0.0 if messages else quiet_s + 0.05
            if quiet_s > deadline_s * deadline_factor():
                raise NotInTimeError(f"{topic}: nothing more of partitions {sorted(pending)}")
            for message in messages:
                _take(message, log, pending)
        return {partition: tuple(records) for partition, records in log.items()}


def compare_logs(
    source: str,
    target: str,
    topic: str,
    *,
    target_topic: str | None = None,
    isolation: str = "read_committed",
    timestamps: bool = True,
) -> Comparison:
    """Read a topic of both clusters from the beginning and judge the copy."""
    original = read_all(source, topic, isolation)
    copy = read_all(target, target_topic or topic, isolation)
    return compare(original, copy, timestamps=timestamps)


def _take(message: Message, log: Mapping[int, list[ConsumedRecord]], pending: set[int]) -> None:
    partition = message.partition()
    assert partition is not None
    error = message.error()
    if error is None:
        log[partition].append(consumed(message))
    elif error.code() == KafkaError._PARTITION_EOF:
        pending.discard(partition)
    elif not error.retriable():
        raise KafkaException(error)


def consumed(message: Message) -> ConsumedRecord:
    offset = message.offset()
    assert offset is not None
    timestamp_type, timestamp = message.timestamp()
    pairs: Any = message.headers() or ()
    headers = tuple((name, value) for name, value in pairs)
    return ConsumedRecord(
        offset, message.key(), message.value(), headers, timestamp_type, timestamp
    )


def _partitions_of(consumer: Consumer, topic: str) -> Sequence[int]:
    found = consumer.list_topics(topic, timeout=RESPONSE_S).topics[topic]
    if found.error is not None:
        raise KafkaException(found.error)
    return sorted(found.partitions)


@contextmanager
def open_consumer(bootstrap: str, isolation: str, *, wait_ms: int = 50) -> Iterator[Consumer]:
    """`wait_ms`: how long a fetch waits for records, and so the end of a partition is not found before."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "testkit",  # required, but never joined: partitions are assigned by hand
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "isolation.level": isolation,
            "check.crcs": True,
            "fetch.wait.max.ms": wait_ms,
            **QUIET,
        }
    )
    try:
        yield consumer
    finally:
        consumer.close()
