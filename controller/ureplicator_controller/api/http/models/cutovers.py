"""Requests and responses of `/cutovers`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, Strict

from ureplicator_common.cutovers import (
    Cutover,
    CutoverPlan,
    CutoverState,
    FenceKind,
    LateWrite,
    Step,
    Wanted,
)
from ureplicator_common.model import ID_RULE, Route, is_legal_id
from ureplicator_controller.api.http.models.requests import Body, DryRun, Path, Query, RouteQuery
from ureplicator_controller.api.http.models.responses import ResponseModel
from ureplicator_controller.api.http.problems import bad_request
from ureplicator_controller.core.cutover.facts import Level, PlanFinding
from ureplicator_controller.core.cutover.findings import blocking
from ureplicator_controller.core.cutover.requests import Known
from ureplicator_controller.core.cutover.states import AT_REST
from ureplicator_controller.core.reporting.authorship import by_of, id_of

_ID = r"^[a-zA-Z0-9._-]{1,100}$"
Pattern = Annotated[str, Field(min_length=1, max_length=1_000)]


def _legal(id: str) -> str:
    if not is_legal_id(id):
        raise ValueError
    return id


Id = Annotated[str, Field(pattern=_ID), AfterValidator(_legal)]
Flag = Annotated[bool, Strict()]
_FLAG = "true or false"


class AnyCutoverPath(Path):
    """Any name: one that is not there is a 404."""

    name: str


class CutoverPath(Path):
    name: Id = Field(title="a name", description=f"name of the cutover: {ID_RULE}")


class PlanCutoverQuery(RouteQuery):
    dry_run: DryRun = Field(default="false")


class StartCutoverQuery(Query):
    plan: str | None = Field(
        default=None,
        pattern="^[0-9a-f]{16}$",
        title="the id of a plan",
        description="carry out exactly this plan, or nothing",
    )
    confirm: Literal["true", "false"] = Field(
        default="false",
        title=_FLAG,
        description="true: carry out the plan that is stored; not needed with its id",
    )


class BackCutoverQuery(Query):
    dry_run: DryRun = Field(default="false")
    confirm: Literal["true", "false"] = Field(
        default="false", title=_FLAG, description="true: move clients back now"
    )


class PlanCutoverBody(Body):
    topics: Annotated[list[Pattern], Field(min_length=1, max_length=1_000), Strict()] = Field(
        title="patterns of topics",
        description="regular expressions for whole names of source topics; a name is one",
        examples=[["orders"]],
    )
    groups: Annotated[list[Pattern], Field(max_length=1_000), Strict()] = Field(
        default=[],
        title="patterns of consumer groups",
        description="regular expressions for whole names of consumer groups; default: none",
    )
    fence: FenceKind = Field(
        default=FenceKind.NONE,
        title="a kind of fence",
        description="acl: access rights; command: a program; none: producers stand still",
    )
    fence_command: Annotated[str, Field(min_length=1, max_length=1_000)] | None = Field(
        default=None,
        alias="fenceCommand",
        title="the name of a program",
        description="program in the directory `controller.fence_commands`, for fence: command",
    )
    principal: Annotated[str, Field(pattern=r"^[^:\s]+:.+$", max_length=1_000)] | None = Field(
        default=None,
        title="a principal",
        description="the fleet's at the source, as in User:ureplicator, for fence: acl; default: from its"
        " login",
    )
    way_back: Flag = Field(
        default=True,
        alias="wayBack",
        title=_FLAG,
        description="true: the topics are copied back, under the same names",
    )
    wait_for_groups: Flag = Field(
        default=False,
        alias="waitForGroups",
        title=_FLAG,
        description="true: until the groups have no members at the source",
    )
    abort_transactions: Flag = Field(
        default=False,
        alias="abortTransactions",
        title=_FLAG,
        description="true: transactions that are open behind the fence are aborted",
    )
    verify: Flag = Field(
        default=False,
        title=_FLAG,
        description="true: until an auditor has compared everything",
    )
    limit_seconds: Annotated[float, Field(gt=0, le=86_400)] = Field(
        default=60.0,
        alias="limitSeconds",
        title="a number of seconds",
        description="time from the fence after which a cutover that is not open is aborted",
    )

    def plan(self, route: Route) -> CutoverPlan:
        """What is wanted, to be resolved. Raises Problem."""
        if (self.fence is FenceKind.COMMAND) is (self.fence_command is None):
            raise bad_request(
                "fenceCommand is missing"
                if self.fence_command is None
                else f"a program is given for fence: {self.fence}",
                field="fenceCommand",
                hint="fence: command takes the name of a program, and no other fence does",
            )
        return CutoverPlan(
            id="",
            route=route,
            topic_patterns=tuple(self.topics),
            group_patterns=tuple(self.groups),
            fence=self.fence,
            fence_command=self.fence_command or "",
            principal=self.principal or "",
            way_back=self.way_back,
            limit_s=self.limit_seconds,
            waits_for_groups=self.wait_for_groups,
            aborts_transactions=self.abort_transactions,
            verifies=self.verify,
        )


class PlannedFinding(ResponseModel):
    check: str
    subject: str
    level: Level
    text: str
    advice: str = Field(description="what to do about it, or empty")


class CutoverRights(ResponseModel):
    added: list[str]
    removed: list[str]


class CutoverPlanFields(ResponseModel):
    id: str
    route: str
    topicPatterns: list[str]
    groupPatterns: list[str]
    topics: dict[str, int] = Field(description="topic -> partitions")
    groups: list[str]
    fence: FenceKind
    fenceCommand: str
    principal: str
    rights: CutoverRights = Field(
        description="that the fence adds at the source, and removes there"
    )
    wayBack: bool
    waitForGroups: bool
    abortTransactions: bool
    verify: bool
    limitSeconds: float


class CutoverPlanned(ResponseModel):
    name: str
    dryRun: bool
    plan: CutoverPlanFields
    findings: list[PlannedFinding]
    blocked: bool = Field(description="true: a finding blocks, so that it cannot be started")
    request: str | None = Field(description="id of the run that was requested; null: none was")


class CutoverRequested(ResponseModel):
    name: str
    plan: str = Field(description="id of the plan")
    request: str = Field(description="id of the request, and of the run that it begins")
    findings: list[PlannedFinding]


class CutoverAborted(ResponseModel):
    name: str
    abort: Literal["requested"]


class CutoverSummary(ResponseModel):
    name: str
    route: str
    state: CutoverState
    wanted: Wanted = Field(description="what operators want of it: plan, rehearse, start or abort")
    reason: str = Field(description="why it was given up, or empty")
    topics: int
    groups: int
    blockedSeconds: float | None = Field(
        description="from the fence until writers could go on, so far; null: there was no fence"
    )


class CutoverSummaries(ResponseModel):
    cutovers: list[CutoverSummary]


class CutoverStep(ResponseModel):
    state: CutoverState
    at: int = Field(description="time in milliseconds")
    seconds: float


class CutoverLateWrite(ResponseModel):
    topic: str
    partition: int
    firstOffset: int
    nextOffset: int
    producers: list[int] = Field(description="ids of producers that have written since")
    at: int
    alarm: bool = Field(description="true: after OPEN, so the records are at the source alone")


class FormerCutover(ResponseModel):
    run: str
    route: str
    state: CutoverState


class CutoverDetails(ResponseModel):
    name: str
    route: str
    state: CutoverState
    wanted: Wanted
    run: str | None = Field(description="null: the leader has not begun it")
    plan: CutoverPlanFields
    reason: str
    steps: list[CutoverStep]
    blockedSeconds: float | None
    fencedAt: int = Field(
        description="time in milliseconds at which the fence was begun; 0: not yet"
    )
    openedAt: int = Field(description="at which clients could write at the target; 0: not yet")
    waits: list[str] = Field(description="what it waits for, and who is in its way")
    late: list[CutoverLateWrite] = Field(description="first writes that have passed the fence")
    lateOffsets: int
    groups: dict[str, str] = Field(description="group -> outcome")
    verified: str = Field(description="what the comparison of the tail found")
    rehearsal: dict[str, float] = Field(description="step -> seconds that it took in a rehearsal")
    request: str = Field(description="id of the last request; empty: not known")
    by: str = Field(description="who sent it; empty: nobody is known")
    requestedAt: int = Field(description="0: not known")
    former: FormerCutover | None = Field(
        description="the run before, while the leader has not begun another one"
    )


def findings_json(found: Sequence[PlanFinding]) -> list[dict[str, Any]]:
    return [
        {
            "check": finding.check,
            "subject": finding.subject,
            "level": finding.level,
            "text": finding.text,
            "advice": finding.advice,
        }
        for finding in found
    ]


def planned_json(
    name: str, plan: CutoverPlan, found: Sequence[PlanFinding], *, dry_run: bool, run: str = ""
) -> dict[str, Any]:
    return {
        "name": name,
        "dryRun": dry_run,
        "plan": plan_json(plan),
        "findings": findings_json(found),
        "blocked": bool(blocking(found)),
        "request": run or None,
    }


def plan_json(plan: CutoverPlan) -> dict[str, Any]:
    return {
        "id": plan.id,
        "route": str(plan.route),
        "topicPatterns": list(plan.topic_patterns),
        "groupPatterns": list(plan.group_patterns),
        "topics": dict(plan.topics),
        "groups": list(plan.groups),
        "fence": plan.fence,
        "fenceCommand": plan.fence_command,
        "principal": plan.principal,
        "rights": {
            "added": sorted(map(str, plan.acls.added)),
            "removed": sorted(map(str, plan.acls.removed)),
        },
        "wayBack": plan.way_back,
        "waitForGroups": plan.waits_for_groups,
        "abortTransactions": plan.aborts_transactions,
        "verify": plan.verifies,
        "limitSeconds": plan.limit_s,
    }


def summary_json(name: str, found: Known, *, now_ms: int) -> dict[str, Any]:
    plan, run = _plan(found), found.run
    return {
        "name": name,
        "route": str(plan.route),
        "state": found.state,
        "wanted": _wanted(found),
        "reason": run.reason if run else "",
        "topics": len(plan.topics),
        "groups": len(plan.groups),
        "blockedSeconds": blocked_s(run, now_ms=now_ms),
    }


def details_json(name: str, found: Known, *, now_ms: int) -> dict[str, Any]:
    run, request, former = found.run, found.request, found.cutover
    plan = _plan(found)
    by = request.request_id if request else ""
    return {
        "name": name,
        "route": str(plan.route),
        "state": found.state,
        "wanted": _wanted(found),
        "run": run.run if run else None,
        "plan": plan_json(plan),
        "reason": run.reason if run else "",
        "steps": [_step(step) for step in run.steps] if run else [],
        "blockedSeconds": blocked_s(run, now_ms=now_ms),
        "fencedAt": run.fenced_ms if run else 0,
        "openedAt": run.opened_ms if run else 0,
        "waits": list(run.waits) if run else [],
        "late": [_late(write) for write in run.late] if run else [],
        "lateOffsets": run.late_offsets if run else 0,
        "groups": dict(run.groups) if run else {},
        "verified": run.verified if run else "",
        "rehearsal": {step: ms / 1_000 for step, ms in run.rehearsed_ms.items()} if run else {},
        "request": id_of(by),
        "by": by_of(by),
        "requestedAt": request.requested_ms if request else 0,
        "former": _former(former) if former is not None and run is None else None,
    }


def blocked_s(run: Cutover | None, *, now_ms: int) -> float | None:
    """Seconds for which writers were kept out, or are until now; None without a fence."""
    if run is None or not run.fenced_ms:
        return None
    if run.opened_ms:
        until_ms = run.opened_ms
    elif run.state in AT_REST and run.steps:
        until_ms = run.steps[-1].at_ms
    else:
        until_ms = now_ms
    return max(0, until_ms - run.fenced_ms) / 1_000


def _plan(found: Known) -> CutoverPlan:
    assert found.plan is not None
    return found.plan


def _wanted(found: Known) -> Wanted:
    """What is wanted of it. The leader gives a run up by itself, and ends a rehearsal."""
    run, request = found.run, found.request
    if run is not None and (request is None or run.wanted in (Wanted.ABORT, Wanted.PLAN)):
        return run.wanted
    return Wanted.PLAN if request is None else request.wanted


def _step(step: Step) -> dict[str, Any]:
    return {"state": step.state, "at": step.at_ms, "seconds": step.took_ms / 1_000}


def _late(write: LateWrite) -> dict[str, Any]:
    return {
        "topic": write.topic,
        "partition": write.partition,
        "firstOffset": write.first,
        "nextOffset": write.next,
        "producers": list(write.producers),
        "at": write.at_ms,
        "alarm": write.is_alarm,
    }


def _former(former: Cutover) -> dict[str, Any]:
    return {"run": former.run, "route": str(former.plan.route), "state": former.state}
