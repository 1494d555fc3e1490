"""Plain consumers of a group, as applications have them, and the offsets of their groups."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from ureplicator_testkit.records.topics import QUIET
from ureplicator_testkit.servers.processes import deadline_factor, eventually

READ_S = 60 * deadline_factor()

Values = list[tuple[int, bytes]]
"""Partition and value of each record."""


def open_member(bootstrap: str, group: str, topic: str) -> Consumer:
    """A member of the group. It commits when it is told to, and fails where the group has no offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    consumer.subscribe([topic])
    return consumer


def read_next(consumer: Consumer, count: int) -> Values:
    """The next records."""
    found: Values = []

    def enough() -> bool:
        for message in consumer.consume(max(1, count - len(found)), timeout=0.2):
            assert message.error() is None, message.error()
            found.append((message.partition() or 0, message.value() or b""))
        return len(found) >= count

    eventually(enough, READ_S, f"{count} records are read")
    return found


def alter_offsets(bootstrap: str, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    rows = [TopicPartition(topic, number, offset) for (topic, number), offset in offsets.items()]
    wanted = [ConsumerGroupTopicPartitions(group, rows)]
    for future in admin.alter_consumer_group_offsets(wanted).values():
        future.result(timeout=READ_S)


def delete_group(bootstrap: str, group: str) -> None:
    """A group without members, with all its offsets."""
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    admin.delete_consumer_groups([group])[group].result(timeout=READ_S)


def group_offsets(bootstrap: str, group: str) -> dict[tuple[str, int], TopicPartition]:
    """Committed offsets of a group, with their leader epochs."""
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    (found,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    rows = found.result(timeout=READ_S).topic_partitions or []
    return {(row.topic, row.partition): row for row in rows}
