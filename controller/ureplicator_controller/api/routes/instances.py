"""`/instances`: the workers, live and known, and the partitions that each of them holds.

DELETE drains a worker: each of its partitions is taken away, released and only then assigned to another
worker, and the worker gets no others until POST ends the draining. Both are idempotent.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flask_openapi3 import APIBlueprint

from ureplicator_common.contents import KnownWorker
from ureplicator_common.model import ID_RULE, PartitionState, WorkerId, is_legal_id
from ureplicator_controller.api.access.roles import operator, viewer
from ureplicator_controller.api.http.models.history import RebalanceRequested
from ureplicator_controller.api.http.models.instances import (
    InstanceList,
    WorkerForgotten,
    WorkerTags,
)
from ureplicator_controller.api.http.models.requests import (
    IfMatchHeader,
    OptionalBody,
    Query,
    WorkerPath,
)
from ureplicator_controller.api.http.models.responses import JsonResult, responses, write_responses
from ureplicator_controller.api.http.openapi import group
from ureplicator_controller.api.http.preconditions import etag
from ureplicator_controller.api.http.problems import bad_request
from ureplicator_controller.api.routes.rebalance import requested
from ureplicator_controller.api.services.fleet_cache import FleetCache, FleetState
from ureplicator_controller.api.services.switches import SwitchService
from ureplicator_controller.api.services.workers import WorkerService, unknown_worker
from ureplicator_controller.core.state.external_view import reported_state
from ureplicator_controller.core.state.snapshot import Snapshot
from ureplicator_controller.core.state.topic_tallies import Tallies
from ureplicator_controller.core.state.validation_counts import validation_counts

_SHOWN = 100
"""Characters of a refused id."""


def blueprint(
    *, fleet: FleetCache, workers: WorkerService, switches: SwitchService
) -> APIBlueprint:
    api = group("instances", __name__)

    @api.get("/instances", responses=responses(InstanceList))
    @viewer
    def list_instances(query: Query) -> JsonResult:
        """Workers, with their addresses and partitions."""
        fleet_state = fleet.current()
        return describe(fleet_state, fleet.tallies(fleet_state), known_workers(fleet_state))

    @api.post("/instances", responses=write_responses(RebalanceRequested))
    @operator
    def rebalance_instances(query: Query, body: OptionalBody, header: IfMatchHeader) -> JsonResult:
        """Request a rebalance now, without waiting for the rebalance delays."""
        return requested(switches, header)

    @api.get("/instances/<path:worker>", responses=responses(InstanceList, 404))
    @viewer
    def show_instance(path: WorkerPath, query: Query) -> JsonResult:
        """One worker, with its partitions."""
        fleet_state = fleet.current()
        if path.worker not in known_workers(fleet_state):
            raise unknown_worker(path.worker)
        worker = WorkerId(path.worker)
        node = fleet_state.nodes.get(fleet.paths.worker_known(worker))
        return describe(fleet_state, fleet.tallies(fleet_state), [worker]), 200, etag(node)

    @api.delete("/instances/<path:worker>", responses=write_responses(WorkerTags, 404))
    @operator
    def drain_instance(path: WorkerPath, query: Query, header: IfMatchHeader) -> JsonResult:
        """Drain a worker: move its partitions away, and assign it no others."""
        id = worker_name(path.worker)
        return _tags(id, workers.drain(id, header.condition))

    @api.post("/instances/<path:worker>", responses=write_responses(WorkerTags, 404))
    @operator
    def restore_instance(
        path: WorkerPath, query: Query, body: OptionalBody, header: IfMatchHeader
    ) -> JsonResult:
        """End the draining of a worker."""
        id = worker_name(path.worker)
        return _tags(id, workers.undrain(id, header.condition))

    @api.post(
        "/instances/<path:worker>/forget", responses=write_responses(WorkerForgotten, 404, 409)
    )
    @operator
    def forget_instance(
        path: WorkerPath, query: Query, body: OptionalBody, header: IfMatchHeader
    ) -> JsonResult:
        """Remove what the fleet remembers of a worker that is gone for good."""
        id = node_name(path.worker)
        workers.forget(id, header.condition)
        return {"worker": id, "forgotten": True}

    return api


def worker_name(name: str) -> WorkerId:
    """The id of a worker, if a worker may have it. Raises Problem."""
    if not is_legal_id(name):
        shown = name if len(name) <= _SHOWN else f"{name[:_SHOWN]}..."
        raise bad_request(f"no worker may have the id {shown!r}", field="worker", hint=ID_RULE)
    return WorkerId(name)


def node_name(name: str) -> WorkerId:
    """The id of a worker that may be there, also one that no worker may have. Raises Problem."""
    if "/" in name or "\0" in name or name in (".", ".."):
        raise unknown_worker(name)
    return WorkerId(name)


def _tags(worker: WorkerId, known: KnownWorker) -> JsonResult:
    return {"worker": worker, "blacklisted": known.blacklisted, "draining": known.draining}


def known_workers(fleet_state: FleetState) -> list[WorkerId]:
    snapshot = fleet_state.snapshot
    return sorted({*snapshot.sessions, *snapshot.live, *snapshot.known})


def describe(
    fleet_state: FleetState, tallies: Tallies, workers: Iterable[WorkerId]
) -> dict[str, Any]:
    """uReplicator's three keys, and `workers` with the details."""
    snapshot = fleet_state.snapshot
    chosen = list(workers)
    held = {worker: _held(snapshot, worker) for worker in chosen}
    ideal = validation_counts(snapshot, tallies).ideal_state
    return {
        "instances": {
            worker: _with_total(held.get(worker, []))
            for worker in chosen
            if worker in snapshot.sessions
        },
        "blacklisted": sorted(
            worker for worker, known in snapshot.known.items() if known.value.blacklisted
        ),
        "allInstances": known_workers(fleet_state),
        "workers": {
            worker: _worker(fleet_state, worker, held.get(worker, []), ideal.get(worker, 0))
            for worker in chosen
        },
    }


def _with_total(held: list[dict[str, Any]]) -> list[str]:
    """As uReplicator's scripts read it."""
    each = [f"{row['topic']}.{row['partition']}:{row['bytesPerSecond']}" for row in held]
    return [*each, f"TOTALWORKLOAD.{len(held)}:{_bytes_per_s(held)}"]


def _bytes_per_s(held: list[dict[str, Any]]) -> int:
    return sum(row["bytesPerSecond"] for row in held)


def _worker(
    fleet_state: FleetState, worker: WorkerId, held: list[dict[str, Any]], ideal: int
) -> dict[str, Any]:
    snapshot = fleet_state.snapshot
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
