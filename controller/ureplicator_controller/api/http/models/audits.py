"""Requests and responses of `/audits`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from ureplicator_common.audits.standing import AuditState
from ureplicator_controller.api.http import times
from ureplicator_controller.api.http.models.limits import BytesPerSecond
from ureplicator_controller.api.http.models.requests import Number, OptionalBody, RouteQuery
from ureplicator_controller.api.http.models.responses import ResponseModel
from ureplicator_controller.api.http.problems import bad_request

_BOUND = rf"^([0-9]{{1,18}}|{times.TIME})$"
_BOUND_TITLE = "an offset or a time"
_BOUND_HINT = "an offset of the source, or a time as in 2026-01-31T12:00:00Z"


def _as_text(value: object) -> object:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _is_bound(text: str) -> str:
    return text if text.isdecimal() else times.checked(text)


Bound = Annotated[
    str,
    Field(pattern=_BOUND),
    BeforeValidator(_as_text, json_schema_input_type=int | Annotated[str, Field(pattern=_BOUND)]),
    AfterValidator(_is_bound),
]


def _place(bound: str) -> int:
    return int(bound) if bound.isdecimal() else times.milliseconds(bound)


class AuditQuery(RouteQuery):
    dry_run: Literal["true", "false"] = Field(
        default="false",
        title="true or false",
        description="true: show the ranges without requesting anything",
    )


class AuditBody(OptionalBody):
    start: Bound | None = Field(
        default=None,
        alias="from",
        title=_BOUND_TITLE,
        description=f"{_BOUND_HINT}; default: the first record that the source has",
    )
    to: Bound | None = Field(
        default=None,
        title=_BOUND_TITLE,
        description=f"{_BOUND_HINT}; default and at most: the position",
    )
    partitions: Annotated[list[Number], Field(min_length=1, max_length=10_000)] | None = Field(
        default=None, title="partition numbers", description="default: all partitions"
    )
    bytes_per_second: BytesPerSecond | None = Field(
        default=None,
        alias="bytesPerSecond",
        title="a byte limit",
        description="most that is read from each cluster; default: the auditor's `bytes_per_s`",
    )

    def require_order(self) -> None:
        """Raises Problem if the end is not behind the beginning. An offset and a time are not compared."""
        if self.start is None or self.to is None:
            return
        alike = self.start.isdecimal() is self.to.isdecimal()
        if alike and _place(self.start) >= _place(self.to):
            raise bad_request(
                f"{self.start} is not before {self.to}",
                field="from",
                hint="the end is exclusive: give a later one, or none for all up to the position",
            )


class RequestedRange(ResponseModel):
    partition: int
    source: int = Field(alias="from", description="first source offset")
    to: int = Field(description="source offset after the last one")


class AuditRequested(ResponseModel):
    topic: str
    route: str
    dryRun: bool
    request: str | None = Field(description="id of the audit; null in a dry run")
    offsets: int = Field(description="source offsets to compare")
    ranges: list[RequestedRange]
    auditors: list[str] = Field(description="live auditors; empty: the request waits for one")


class AuditCancelled(ResponseModel):
    topic: str
    route: str
    request: str = Field(description="id of the audit that was requested")


class PendingAudit(ResponseModel):
    id: str
    requested: int = Field(description="milliseconds since 1970")
    offsets: int = Field(description="source offsets to compare")
    attempts: int = Field(description="how often an auditor began it; after ten it is given up")


class AuditUnderWay(ResponseModel):
    id: str
    auditor: str
    since: int = Field(description="milliseconds since 1970")
    offsets: int = Field(description="source offsets to compare")
    compared: int = Field(description="source offsets compared so far")
    differences: int = Field(description="found so far")


class AuditSummary(ResponseModel):
    topic: str
    route: str
    state: AuditState
    reason: str = Field(
        description="why it is stale, or could not be compared behind the copy; empty: neither"
    )
    verifiedAt: int | None = Field(
        description="time of the oldest of its partitions' comparisons, in milliseconds since 1970"
    )
    secondsSinceVerified: float | None
    behindOffsets: int | None = Field(
        description="source offsets copied and not verified; null: no position is known"
    )
    partitions: int
    verifiedPartitions: int
    differences: dict[str, int] = Field(description="kind -> number, in the verified ranges")
    coverage: float | None = Field(
        description="share of the offsets that an auditor passed behind the copy and compared; null: none did"
    )
    requested: PendingAudit | None
    running: AuditUnderWay | None


class AuditList(ResponseModel):
    audits: list[AuditSummary]
    auditors: dict[str, str] = Field(description="live auditor -> address of its pages")
    followers: dict[str, str] = Field(description="route -> auditor that follows behind its copy")
    staleAfterSeconds: float


class VerifiedPartition(ResponseModel):
    partition: int
    source: int = Field(alias="from", description="first verified source offset")
    to: int = Field(description="source offset after the last verified one")
    verifiedAt: int = Field(description="milliseconds since 1970")
    position: int | None = Field(description="next source offset to copy; null: not known")
    differences: dict[str, int]


class ShownFinding(ResponseModel):
    partition: int
    kind: str
    sourceOffset: int | None
    targetOffset: int | None


class PastAudit(ResponseModel):
    """The last audit that was requested and has ended."""

    id: str
    auditor: str
    started: int = Field(description="milliseconds since 1970")
    ended: int = Field(description="milliseconds since 1970")
    outcome: str = Field(
        description="done, cancelled, not verified with the reason, or why it failed"
    )
    records: int = Field(description="records compared")
    repeated: int = Field(description="repeats that at least once allows")
    differences: dict[str, int]
    report: str = Field(description="where its result lies, on the auditor's side; empty: nowhere")


class AuditDetails(AuditSummary):
    verified: list[VerifiedPartition]
    findings: list[ShownFinding] = Field(description="the first few differences")
    last: PastAudit | None
