"""Committed positions for display: read from the target, and never worth waiting long for.

A reader talks over sockets of its own and belongs to one thread, so each target cluster has one
thread here that reads, and requests wait for it with an end. With the target away a topic is
still shown; its positions are null, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from threading import Lock

from ureplicator_common.errors import OperatingError
from ureplicator_common.kafka import Position, PositionReader
from ureplicator_common.model import TopicIntent, TopicKey, position_group

ANSWER_S = 1.5

Known = Mapping[str, int | None]
"""Partition -> next source offset to copy; null where none was committed yet."""


class _Reader:
    """One cluster's reader and its thread, made at first use."""

    def __init__(self, connect: Callable[[], PositionReader]) -> None:
        self._connect = connect
        self._reader: PositionReader | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="positions")

    def read(
        self, group: str, topic: str, partitions: int
    ) -> Future[Mapping[tuple[str, int], Position]]:
        return self._thread.submit(self._read, group, topic, partitions)

    def _read(self, group: str, topic: str, partitions: int) -> Mapping[tuple[str, int], Position]:
        if self._reader is None:
            self._reader = self._connect()
        return self._reader.read(group, {topic: range(partitions)})

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)


class Positions:
    """`connect` makes the reader of a cluster by its name; None: this process has none."""

    def __init__(self, connect: Callable[[str], PositionReader] | None, *, fleet: str) -> None:
        self._connect = connect
        self._fleet = fleet
        self._lock = Lock()
        self._readers: dict[str, _Reader] = {}

    def of(self, key: TopicKey, intent: TopicIntent) -> tuple[Known | None, str]:
        """Positions of a topic and "", or None and why not."""
        if self._connect is None:
            return None, "positions are not read by this controller"
        topic = intent.target_topic or key.topic
        group = position_group(fleet=self._fleet, route=key.route)
        future = self._reader(key.route.target).read(group, topic, intent.partitions)
        try:
            found = future.result(timeout=ANSWER_S)
        except OperatingError as error:
            return None, f"{key.route.target}: {error}"
        except FutureTimeout:
            future.cancel()
            return None, f"{key.route.target}: no answer within {ANSWER_S:g} s"
        return {
            str(number): _offset(found.get((topic, number))) for number in range(intent.partitions)
        }, ""

    def close(self) -> None:
        for reader in self._readers.values():
            reader.close()

    def _reader(self, cluster: str) -> _Reader:
        connect = self._connect
        if connect is None:
            raise LookupError(cluster)
        with self._lock:
            if cluster not in self._readers:
                self._readers[cluster] = _Reader(lambda: connect(cluster))
            return self._readers[cluster]


def _offset(position: Position | None) -> int | None:
    return position.offset if position is not None and position.offset >= 0 else None
