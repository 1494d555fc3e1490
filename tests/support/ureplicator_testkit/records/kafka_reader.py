"""Kafka's own reader of batches, asked about payloads, and the program that writes its verdicts:

    PYTHONPATH=tests/support .venv/bin/python -m ureplicator_testkit.records.kafka_reader

It asks each version of Kafka that `scripts/setup --tests` brings about every payload of `kafka_readers.json`,
writes the file, and names the payloads whose readers are others. To add a payload, add a row that is read by
none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from py4j.java_gateway import JavaClass
from py4j.protocol import Py4JJavaError

from ureplicator_testkit.records.java_consumer import java_consumers
from ureplicator_testkit.records.payloads import COUNT, PAYLOADS, Payload, kafka_payloads, to_json
from ureplicator_testkit.servers.java import KAFKA_VERSIONS


def is_read(jvm: Any, payload: Payload) -> bool:
    """True if `DefaultRecordBatch` finds all records of the batch, as it does for brokers and consumers.

    An iterator of py4j ends at an error.
    """
    buffer = jvm.java.nio.ByteBuffer.wrap(payload.batch())
    batches = _memory_records(jvm).readableRecords(buffer).batches().iterator()
    try:
        return sum(1 for _ in batches.next().iterator()) == COUNT
    except Py4JJavaError:
        return False


def _memory_records(jvm: Any) -> Any:
    """Kafka 4.3 and later have the class in another package."""
    package = jvm.org.apache.kafka.common.record
    found = package.MemoryRecords
    return found if isinstance(found, JavaClass) else package.internal.MemoryRecords


def judged(payloads: Sequence[Payload], versions: Sequence[str]) -> list[Payload]:
    """The payloads, each with those of the versions that read it."""
    read: Mapping[str, list[bool]] = {version: _verdicts(version, payloads) for version in versions}
    return [
        replace(payload, readers=tuple(version for version in versions if read[version][number]))
        for number, payload in enumerate(payloads)
    ]


def _verdicts(version: str, payloads: Sequence[Payload]) -> list[bool]:
    with java_consumers(version) as jvm:
        return [is_read(jvm, payload) for payload in payloads]


def main() -> None:
    before = kafka_payloads()
    after = judged(before, KAFKA_VERSIONS)
    PAYLOADS.write_text(to_json(after))
    for old, new in zip(before, after, strict=True):
        if old != new:
            print(f"{new.name}: read by {list(new.readers)}, not by {list(old.readers)}")


if __name__ == "__main__":
    main()
