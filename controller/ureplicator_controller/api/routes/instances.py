"""`/instances`: the workers, live and known, and the partitions that each of them holds.

DELETE drains a worker: each of its partitions is taken away, released and only then assigned to another
worker, and the worker gets no others until POST ends the draining. Both are idempotent.
"""

from __future__ import annotations

from collections.abc import Sequence

from flask import Response
from flask_openapi3 import APIBlueprint

from ureplicator_common.model import ID_RULE, WorkerId, is_legal_id
from ureplicator_common.znode_contents import KnownWorker
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
from ureplicator_controller.api.services.instances import EncodedInstances, known_workers
from ureplicator_controller.api.services.switches import SwitchService
from ureplicator_controller.api.services.workers import WorkerService, unknown_worker

_SHOWN = 100
"""Characters of a refused id."""


def blueprint(
    *,
    fleet: FleetCache,
    workers: WorkerService,
    switches: SwitchService,
    encoded: EncodedInstances,
) -> APIBlueprint:
    api = group("instances", __name__)

    def response(fleet_state: FleetState, shown: Sequence[WorkerId]) -> Response:
        body = encoded.body(fleet_state, fleet.tallies(fleet_state), shown)
        return Response(body, content_type="application/json")

    @api.get("/instances", responses=responses(InstanceList), validate_response=False)
    @viewer
    def list_instances(query: Query) -> Response:
        """Workers, with their addresses and partitions."""
        fleet_state = fleet.current()
        return response(fleet_state, known_workers(fleet_state.snapshot))

    @api.post("/instances", responses=write_responses(RebalanceRequested))
    @operator
    def rebalance_instances(query: Query, body: OptionalBody, header: IfMatchHeader) -> JsonResult:
        """Request a rebalance now, without waiting for the rebalance delays."""
        return requested(switches, header)

    @api.get(
        "/instances/<path:worker>",
        responses=responses(InstanceList, 404),
        validate_response=False,
    )
    @viewer
    def show_instance(path: WorkerPath, query: Query) -> Response:
        """One worker, with its partitions."""
        fleet_state = fleet.current()
        known = known_workers(fleet_state.snapshot)
        if path.worker not in known:
            raise unknown_worker(path.worker, known)
        worker = WorkerId(path.worker)
        shown = response(fleet_state, [worker])
        shown.headers.update(etag(fleet_state.nodes.get(fleet.paths.worker_known(worker))))
        return shown

    _add_tags(api, workers)
    return api


def _add_tags(api: APIBlueprint, workers: WorkerService) -> None:
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
