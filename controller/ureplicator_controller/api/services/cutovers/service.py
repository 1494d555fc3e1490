"""Requests for cutovers, written for the leader: a plan is stored, rehearsed, started, aborted, or reversed.

The node of a request has one writer, REST, and the leader's own node tells how far it is. A start carries out
the very plan that is stored: it is made anew, and refused with what has changed if it is another one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ureplicator_common.clock import Clock
from ureplicator_common.config.clusters import ClusterSettings
from ureplicator_common.coordination import Node, create_or_set, version_of
from ureplicator_common.coordination.edit import Edit
from ureplicator_common.cutovers import CutoverPlan, CutoverRequest, FenceKind, Wanted
from ureplicator_common.znodes.cutovers import decode_cutover_request, encode_cutover_request
from ureplicator_controller.api.http.problems import bad_request, conflict, not_found
from ureplicator_controller.api.http.request_ids import RequestIds
from ureplicator_controller.api.services.cutovers.planner import (
    CutoverPlanner,
    Planned,
    own_principal,
)
from ureplicator_controller.api.services.fleet_cache import FleetCache
from ureplicator_controller.api.services.node_editor import NodeEditor, decoded
from ureplicator_controller.core.cutover.facts import PlanFinding
from ureplicator_controller.core.cutover.findings import blocking
from ureplicator_controller.core.cutover.plan import plan_changes, way_back
from ureplicator_controller.core.cutover.requests import (
    Known,
    known,
    names,
    refused_abort,
    refused_back,
    refused_plan,
)

_PLAN_HINT = "make a new plan of it, and look at its findings"
_BACK_HINT = "POST /cutovers/{name}/back moves clients back"
_STATE_HINT = "GET /cutovers tells its state"
_BUSY_HINT = "wait for its end, or abort it"
MAX_BLOCKING = 3
"""Findings that a refusal names."""


class CutoverService:
    """Every call may raise Problem, Unavailable and ClusterUnavailable."""

    def __init__(
        self,
        *,
        fleet: FleetCache,
        editor: NodeEditor,
        planner: CutoverPlanner,
        clusters: Mapping[str, ClusterSettings],
        clock: Clock,
        ids: RequestIds,
    ) -> None:
        self._fleet = fleet
        self._editor = editor
        self._planner = planner
        self._clusters = clusters
        self._clock = clock
        self._ids = ids

    def all(self) -> Mapping[str, Known]:
        snapshot = self._fleet.current().snapshot
        return {name: known(snapshot, name) for name in names(snapshot)}

    def find(self, name: str) -> Known:
        found = known(self._fleet.current().snapshot, name)
        if found.plan is None:
            raise not_found(
                f"there is no cutover {name}", field="name", hint="GET /cutovers lists them"
            )
        return found

    def plan(self, name: str, wanted: CutoverPlan, *, dry_run: bool) -> Planned:
        """Make a plan and store it, in place of the former one of this name."""
        _require(name, refused_plan(known(self._fleet.current().snapshot, name)), _BUSY_HINT)
        planned = self._planner.plan(name, self._with_principal(wanted))
        if not dry_run:
            self._request(name, planned.plan, Wanted.PLAN, refused_plan)
        return planned

    def rehearse(self, name: str) -> Planned:
        return self._begin(name, Wanted.REHEARSE, "")

    def start(self, name: str, *, plan: str) -> Planned:
        """Carry out the plan that is stored. `plan`: the id that it must have, "" for any."""
        return self._begin(name, Wanted.START, plan)

    def back(self, name: str, *, dry_run: bool) -> Planned:
        """Carry out the plan of the way back: the same topics and groups, with both clusters changed over."""
        found = self.find(name)
        _require(name, refused_back(found), _STATE_HINT)
        assert found.cutover is not None
        wanted = self._with_principal(self._turned(found.cutover.plan))
        planned = self._planner.plan(name, wanted)
        if not dry_run:
            _refuse_blocking(planned.findings)
            self._request(name, planned.plan, Wanted.START, refused_back)
        return planned

    def abort(self, name: str) -> None:
        found = self.find(name)
        hint = _STATE_HINT if refused_back(found) else _BACK_HINT
        _require(name, refused_abort(found), hint)
        assert found.request is not None
        self._request(name, found.request.plan, Wanted.ABORT, refused_abort, found.request.run)

    def _begin(self, name: str, wanted: Wanted, id: str) -> Planned:
        found = self.find(name)
        _require(name, refused_plan(found), _BUSY_HINT)
        stored = found.plan
        assert stored is not None
        if id and id != stored.id:
            raise conflict(
                f"plan {id} is not that of {name}: it is {stored.id}", field="plan", hint=_PLAN_HINT
            )
        planned = self._planner.plan(name, stored)
        changes = plan_changes(stored, planned.plan)
        if changes:
            text = f"plan {stored.id} is not what would be done now: {'; '.join(changes)}"
            raise conflict(text, field="plan", hint=_PLAN_HINT)
        _refuse_blocking(planned.findings)

        def refused(now: Known) -> str:
            is_same = now.plan is not None and now.plan.id == stored.id
            return refused_plan(now) or ("" if is_same else "another plan was made of it")

        self._request(name, planned.plan, wanted, refused)
        return planned

    def _request(
        self,
        name: str,
        plan: CutoverPlan,
        wanted: Wanted,
        refused: Callable[[Known], str],
        run: str = "",
    ) -> None:
        """Write the request. `refused`: judges what is there when it is written. `run`: a new one, unless
        given."""
        path = self._fleet.paths.cutovers.request(name)
        request = CutoverRequest(
            plan=plan,
            wanted=wanted,
            run=run or self._ids.current(),
            request_id=self._ids.reference(),
            requested_ms=self._clock.wall_ms(),
        )

        def decide(node: Node | None) -> Edit[None]:
            there = known(self._fleet.current().snapshot, name)
            now = replace(there, request=_request_in(path, node))
            _require(name, refused(now), _BUSY_HINT)
            return Edit(None, [create_or_set(path, _encoded(request), version_of(node))])

        def applied(node: Node | None) -> bool:
            stored = _request_in(path, node)
            return stored is not None and stored.request_id == request.request_id

        self._editor.edit(path, decide, applied)

    def _with_principal(self, wanted: CutoverPlan) -> CutoverPlan:
        """The wish with the name under which the fleet logs in at the source, if it has none."""
        if wanted.fence is not FenceKind.ACL or wanted.principal:
            return wanted
        principal = own_principal(self._clusters[wanted.route.source])
        if not principal:
            raise bad_request(
                f"the principal of the fleet at {wanted.route.source} is not known",
                field="principal",
                hint="give it as the brokers have it, as in User:ureplicator",
            )
        return replace(wanted, principal=principal)

    def _turned(self, plan: CutoverPlan) -> CutoverPlan:
        """The way back. A principal that follows from the configuration is that of the other cluster then."""
        turned = way_back(plan)
        is_own = plan.principal == own_principal(self._clusters[plan.route.source])
        return replace(turned, principal="") if is_own else turned


def _encoded(request: CutoverRequest) -> bytes:
    try:
        return encode_cutover_request(request)
    except ValueError as error:
        raise conflict(
            f"the plan is too large: {error}", field="topics", hint="move fewer topics at a time"
        ) from error


def _request_in(path: str, node: Node | None) -> CutoverRequest | None:
    return None if node is None else decoded(path, node, decode_cutover_request)


def _require(name: str, refusal: str, hint: str) -> None:
    if refusal:
        raise conflict(f"{name}: {refusal}", field="name", hint=hint)


def _refuse_blocking(found: Sequence[PlanFinding]) -> None:
    blocks = blocking(found)
    if blocks:
        named = "; ".join(f"{each.subject}: {each.text}" for each in blocks[:MAX_BLOCKING])
        more = len(blocks) - MAX_BLOCKING
        raise conflict(
            f"the plan is blocked: {named}" + (f"; and {more} more" if more > 0 else ""),
            field="name",
            hint=_PLAN_HINT,
        )
