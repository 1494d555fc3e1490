"""A reader as stream processors are: what it has computed and its offsets are committed together, in a store
of its own.

`python -m ureplicator_testkit.records.summing_reader BOOTSTRAP TOPIC STORE [HOLD]` reads a topic to its end.
From `HOLD` records on it keeps a transaction of the store open, and waits for its end.
"""

from __future__ import annotations

import signal
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from zlib import crc32

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from ureplicator_testkit.records.topics import open_consumer

HOLDS = "a transaction is open"
MOST = 20
"""Records of one transaction."""
_MODULO = 2**61 - 1
_TABLE = """create table if not exists sums
(partition integer primary key, next integer, records integer, total integer)"""

Sums = dict[int, tuple[int, int, int]]
"""Partition -> next offset, records, and a sum over them in order."""


def main() -> None:
    bootstrap, topic, store, *hold = sys.argv[1:]
    with (
        closing(sqlite3.connect(store, isolation_level=None)) as database,
        open_consumer(bootstrap, "read_committed") as consumer,
    ):
        database.execute(_TABLE)
        read_to_end(consumer, topic, database, hold=int(hold[0]) if hold else sys.maxsize)


def read_to_end(consumer: Consumer, topic: str, database: sqlite3.Connection, *, hold: int) -> None:
    known = sums(database)
    pending = set(consumer.list_topics(topic, timeout=30).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, n, known.get(n, (0,))[0]) for n in pending])
    while pending:
        messages = consumer.consume(MOST, timeout=0.2)
        pending -= {message.partition() for message in messages if _is_end(message)}
        database.execute("begin immediate")
        for message in messages:
            if message.error() is None:
                _add(known, message)
        rows = [(number, *row) for number, row in known.items()]
        database.executemany("insert or replace into sums values (?, ?, ?, ?)", rows)
        if sum(records for _, records, _ in known.values()) >= hold:
            print(HOLDS, flush=True)
            signal.pause()
        database.execute("commit")


def sums(database: sqlite3.Connection) -> Sums:
    rows = database.execute("select partition, next, records, total from sums")
    return {number: (next_, records, total) for number, next_, records, total in rows}


def stored(store: Path) -> Sums:
    """What was committed."""
    with closing(sqlite3.connect(store)) as database:
        return sums(database)


def _is_end(message: Message) -> bool:
    error = message.error()
    return error is not None and error.code() == KafkaError._PARTITION_EOF


def _add(known: Sums, message: Message) -> None:
    number, offset = message.partition() or 0, message.offset() or 0
    _, records, total = known.get(number, (0, 0, 0))
    total = (31 * total + crc32(message.value() or b"")) % _MODULO
    known[number] = offset + 1, records + 1, total


if __name__ == "__main__":
    main()
