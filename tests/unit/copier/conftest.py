"""A fresh line between two clusters in memory for each test."""

from collections.abc import Iterator

import pytest

from ureplicator_testkit.copier.line import Line, MakeLine
from ureplicator_testkit.kafka.memory_kafka import MemoryKafka


@pytest.fixture
def make() -> Iterator[MakeLine]:
    lines: list[Line] = []

    def make(
        partitions: int = 2, *, topics: tuple[str, ...] = ("t",), nodes: int = 1, **more: object
    ) -> Line:
        source = MemoryKafka("A", dict.fromkeys(topics, partitions), nodes=nodes)
        target = MemoryKafka("B", dict.fromkeys(topics, partitions), nodes=nodes)
        lines.append(Line(source, target, **more))  # type: ignore[arg-type]
        return lines[-1]

    yield make
    for line in lines:
        line.close()
