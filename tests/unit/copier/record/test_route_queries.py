"""A lane with queries in memory: how much of a backlog the process of the queries has at a time."""

from __future__ import annotations

from ureplicator_common.model import Partition, RouteSettings, SqlSettings
from ureplicator_testkit.copier.handler_process import processes
from ureplicator_testkit.copier.line import ROUTE, Line
from ureplicator_testkit.copier.line_history import NODES, fill
from ureplicator_testkit.copier.memory_sql import ALL
from ureplicator_testkit.kafka.memory_kafka import MemoryKafka
from ureplicator_worker.copier.record.handler_scheduler import SQL_MEMORY_SHARE, Group
from ureplicator_worker.copier.record.window import QUERY_CHUNK_BYTES

BUFFER_BYTES = 4 << 20


def under_way(line: Line) -> list[int]:
    """Bytes of the chunks that the process has."""
    handlers = line.lane._handlers
    groups: list[Group] = list(handlers._groups.values())
    return [task.size_bytes for group in groups for task in group.tasks if task.chunk is not None]


def test_a_backlog_is_given_to_queries_up_to_a_share_of_the_memory() -> None:
    """A process that does nothing takes no more; one that works takes all."""
    source, target = (MemoryKafka(name, {"t": 2}, nodes=NODES) for name in "AB")
    route = RouteSettings(sql=(SqlSettings("t", ALL),))
    line = Line(source, target, settings=route, buffer_bytes=BUFFER_BYTES)
    try:
        line.add(0, 1)
        line.run(lambda: bool(processes(line.lane)) and processes(line.lane)[0].ready)
        (process,) = processes(line.lane)
        process.stopped = True
        for number in range(2):
            fill(line, number, [(0, (0, 1, 2))] * 100, 3_000)
        share = BUFFER_BYTES // SQL_MEMORY_SHARE
        for _ in range(300):
            line.turn()
            assert sum(under_way(line)) < share + QUERY_CHUNK_BYTES
        assert sum(under_way(line)) >= share
        process.stopped = False
        line.run(lambda: all(line.copied(Partition(ROUTE, "t", number)) for number in range(2)))
    finally:
        line.close()
