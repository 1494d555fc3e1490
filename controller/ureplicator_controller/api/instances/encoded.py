"""The response to `GET /instances`, put together from what is kept of each worker.

It names every partition of the fleet twice, for uReplicator's scripts and for operators: 15 MB for 100,000
partitions. From one request to the next few workers report anything new, so the text about each worker is
kept while nothing of it changes.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ureplicator_common.model import PartitionState, WorkerId
from ureplicator_controller.api.services.fleet_cache import FleetState
from ureplicator_controller.core.state.by_topic import are_same
from ureplicator_controller.core.state.external_view import reported_state
from ureplicator_controller.core.state.snapshot import Snapshot
from ureplicator_controller.core.state.topic_tallies import Tallies
from ureplicator_controller.core.state.validation_counts import validation_counts


@dataclass(frozen=True, slots=True)
class _WorkerText:
    """Texts about a worker, as JSON. `held`: its value in `instances`; `details`: in `workers`."""

    inputs: tuple[Any, ...]
    ideal: int
    held: str
    details: str


class EncodedInstances:
    """Texts about the workers of one state of the fleet after the other."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._texts: dict[WorkerId, _WorkerText] = {}

    def body(self, fleet_state: FleetState, tallies: Tallies, workers: Iterable[WorkerId]) -> str:
        """uReplicator's three keys, and `workers` with the details, as JSON."""
        snapshot = fleet_state.snapshot
        ideal = validation_counts(snapshot, tallies).ideal_state
        chosen, known = list(workers), known_workers(snapshot)
        with self._lock:
            texts = {
                worker: self._text(snapshot, worker, ideal.get(worker, 0)) for worker in chosen
            }
            for worker in self._texts.keys() - frozenset(known):
                del self._texts[worker]
        tagged = (w for w, each in snapshot.known.items() if each.value.blacklisted)
        parts = {
            "instances": _object((w, texts[w].held) for w in chosen if w in snapshot.sessions),
            "blacklisted": json.dumps(sorted(tagged)),
            "allInstances": json.dumps(known),
            "workers": _object((worker, texts[worker].details) for worker in chosen),
        }
        return _object(parts.items())

    def _text(self, snapshot: Snapshot, worker: WorkerId, ideal: int) -> _WorkerText:
        inputs = (
            snapshot.live.get(worker),
            snapshot.known.get(worker),
            snapshot.sessions.get(worker),
            reported_state(snapshot, worker),
            snapshot.loads.get(worker),
        )
        last = self._texts.get(worker)
        if last is None or not are_same(last.inputs, inputs) or last.ideal != ideal:
            rows = _held(snapshot, worker)
            last = self._texts[worker] = _WorkerText(
                inputs,
                ideal,
                json.dumps(_with_total(rows)),
                json.dumps(_details(snapshot, worker, rows, ideal)),
            )
        return last


def _object(members: Iterable[tuple[str, str]]) -> str:
    """JSON object of values that are JSON already."""
    return "{" + ", ".join(f"{json.dumps(name)}: {value}" for name, value in members) + "}"


def known_workers(snapshot: Snapshot) -> list[WorkerId]:
    """All workers that are live or remembered, in order."""
    return sorted({*snapshot.sessions, *snapshot.live, *snapshot.known})


def _with_total(held: list[dict[str, Any]]) -> list[str]:
    """As uReplicator's scripts read it."""
    each = [f"{row['topic']}.{row['partition']}:{row['bytesPerSecond']}" for row in held]
    return [*each, f"TOTALWORKLOAD.{len(held)}:{_bytes_per_s(held)}"]


def _bytes_per_s(held: list[dict[str, Any]]) -> int:
    return sum(row["bytesPerSecond"] for row in held)


def _details(
    snapshot: Snapshot, worker: WorkerId, held: list[dict[str, Any]], ideal: int
) -> dict[str, Any]:
    live = snapshot.live.get(worker)
    known = snapshot.known.get(worker)
    states = [each["state"] for each in held]
    return {
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
        "partitions": held,
    }


def _held(snapshot: Snapshot, worker: WorkerId) -> list[dict[str, Any]]:
    """Partitions that the worker reports, in order."""
    reported = reported_state(snapshot, worker)
    loads = snapshot.loads.get(worker, {})
    return [
        {
            "route": str(partition.route),
            "topic": partition.topic,
            "partition": partition.number,
            "state": entry.state,
            "reason": entry.reason,
            "bytesPerSecond": round(load.steady_bytes_per_s)
            if (load := loads.get(partition))
            else 0,
        }
        for partition, entry in sorted(reported.entries.items() if reported else ())
    ]
