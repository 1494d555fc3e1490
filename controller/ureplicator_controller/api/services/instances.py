"""The response to `GET /instances`, put together from what is kept of each worker.

It names every partition of the fleet twice, for uReplicator's scripts and for operators: 15 MB for 100,000
partitions. From one request to the next few workers report anything new, so the text about each worker is
kept while nothing of it changes. Rates are means of some minutes, so those that were decoded last for another
purpose, such as the timeline, are recent enough (`recent_loads`). Texts of a whole fleet are prepared every
few seconds, so that no request waits for them.

Texts are bytes and joined once. The rows of partitions are written by hand: that takes half of the time of
making objects and encoding them.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from json.encoder import encode_basestring_ascii as quoted
from typing import Any, NamedTuple

from ureplicator_common.model import Partition, PartitionState, Route, WorkerId
from ureplicator_controller.api.services.fleet_cache import FleetState
from ureplicator_controller.core.state.by_topic import are_same
from ureplicator_controller.core.state.external_view import reported_state
from ureplicator_controller.core.state.loads import recent_loads
from ureplicator_controller.core.state.snapshot import Snapshot
from ureplicator_controller.core.state.topic_tallies import Tallies
from ureplicator_controller.core.state.validation_counts import validation_counts

MAX_TOPICS = 1 << 16
"""Topics whose names are kept as text."""


class _Held(NamedTuple):
    """A partition that a worker reports."""

    partition: Partition
    state: PartitionState
    reason: str
    bytes_per_s: int


@dataclass(frozen=True, slots=True)
class _WorkerText:
    """Texts about a worker, as JSON. `held`: its value in `instances`; `details`: in `workers`."""

    inputs: tuple[Any, ...]
    ideal: int
    held: bytes
    details: bytes


class EncodedInstances:
    """Texts about the workers of one state of the fleet after the other."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._texts: dict[WorkerId, _WorkerText] = {}

    def body(self, fleet_state: FleetState, tallies: Tallies, workers: Iterable[WorkerId]) -> bytes:
        """uReplicator's three keys, and `workers` with the details, as JSON."""
        snapshot = fleet_state.snapshot
        chosen = list(workers)
        texts = self._prepared(snapshot, tallies, chosen)
        tagged = (w for w, stored in snapshot.known.items() if stored.value.blacklisted)
        return b"".join(
            (
                b'{"instances": ',
                *_object((w, texts[w].held) for w in chosen if w in snapshot.sessions),
                b', "blacklisted": ',
                json.dumps(sorted(tagged)).encode(),
                b', "allInstances": ',
                json.dumps(known_workers(snapshot)).encode(),
                b', "workers": ',
                *_object((worker, texts[worker].details) for worker in chosen),
                b"}",
            )
        )

    def prepare(self, fleet_state: FleetState, tallies: Tallies) -> None:
        """Make the texts about all workers, so that the next request need not."""
        snapshot = fleet_state.snapshot
        self._prepared(snapshot, tallies, known_workers(snapshot))

    def _prepared(
        self, snapshot: Snapshot, tallies: Tallies, workers: Iterable[WorkerId]
    ) -> dict[WorkerId, _WorkerText]:
        ideal = validation_counts(snapshot, tallies).ideal_state
        with self._lock:
            texts = {w: self._text(snapshot, w, ideal.get(w, 0)) for w in workers}
            for worker in self._texts.keys() - frozenset(known_workers(snapshot)):
                del self._texts[worker]
        return texts

    def _text(self, snapshot: Snapshot, worker: WorkerId, ideal: int) -> _WorkerText:
        inputs = (
            snapshot.live.get(worker),
            snapshot.known.get(worker),
            snapshot.sessions.get(worker),
            reported_state(snapshot, worker),
            recent_loads(snapshot.loads, worker),
        )
        last = self._texts.get(worker)
        if last is None or not are_same(last.inputs, inputs) or last.ideal != ideal:
            held = _held(snapshot, worker)
            details = _details(snapshot, worker, held, ideal)
            last = self._texts[worker] = _WorkerText(
                inputs, ideal, _with_total(held).encode(), details.encode()
            )
        return last


def _object(members: Iterable[tuple[str, bytes]]) -> Iterator[bytes]:
    """Pieces of a JSON object whose values are JSON already."""
    separator = b"{"
    for name, value in members:
        yield separator + quoted(name).encode() + b": "
        yield value
        separator = b", "
    yield b"{}" if separator == b"{" else b"}"


def known_workers(snapshot: Snapshot) -> list[WorkerId]:
    """All workers that are live or remembered, in order."""
    return sorted({*snapshot.sessions, *snapshot.live, *snapshot.known})


def _with_total(held: Sequence[_Held]) -> str:
    """Partitions as uReplicator's scripts read them: `topic.partition:bytes a second`, and the total."""
    rows = [
        quoted(f"{holding.partition.topic}.{holding.partition.number}:{holding.bytes_per_s}")
        for holding in held
    ]
    return f"[{', '.join((*rows, quoted(f'TOTALWORKLOAD.{len(held)}:{_bytes_per_s(held)}')))}]"


def _bytes_per_s(held: Sequence[_Held]) -> int:
    return sum(holding.bytes_per_s for holding in held)


def _details(snapshot: Snapshot, worker: WorkerId, held: Sequence[_Held], ideal: int) -> str:
    live = snapshot.live.get(worker)
    known = snapshot.known.get(worker)
    states = [holding.state for holding in held]
    members = {
        "live": worker in snapshot.sessions,
        "evicted": live is not None and worker not in snapshot.sessions,
        "host": live.value.host if live else "",
        "port": live.value.port if live else 0,
        "version": live.value.version if live else "",
        "slots": live.value.slots if live else 0,
        "tags": list(live.value.tags if live else known.value.tags if known else ()),
        "zone": live.value.zone if live else "",
        "noCapacity": live.value.no_capacity if live else "",
        "leaving": live is not None and live.value.leaving,
        "blacklisted": bool(known and known.value.blacklisted),
        "draining": bool(known and known.value.draining),
        "lastSeen": (known.value.last_seen_ms or None) if known else None,
        "idealPartitions": ideal,
        "heldPartitions": len(held),
        "onlinePartitions": states.count(PartitionState.ONLINE),
        "errorPartitions": states.count(PartitionState.ERROR),
        "bytesPerSecond": _bytes_per_s(held),
    }
    rows = [
        f"{_names(holding.partition.route, holding.partition.topic)}{holding.partition.number}, "
        f'"state": {quoted(holding.state)}, "reason": {quoted(holding.reason)}, '
        f'"bytesPerSecond": {holding.bytes_per_s}}}'
        for holding in held
    ]
    return f'{json.dumps(members)[:-1]}, "partitions": [{", ".join(rows)}]}}'


@lru_cache(maxsize=MAX_TOPICS)
def _names(route: Route, topic: str) -> str:
    """Begin of a partition's row, up to its number."""
    return f'{{"route": {quoted(str(route))}, "topic": {quoted(topic)}, "partition": '


def _held(snapshot: Snapshot, worker: WorkerId) -> list[_Held]:
    """Partitions that the worker reports, in order."""
    reported = reported_state(snapshot, worker)
    loads = recent_loads(snapshot.loads, worker)
    return [
        _Held(
            partition,
            entry.state,
            entry.reason,
            round(load.steady_bytes_per_s) if (load := loads.get(partition)) else 0,
        )
        for partition, entry in sorted(reported.entries.items() if reported else ())
    ]
