"""Audits of topics as ZooKeeper holds them: what was compared, what is requested, what runs.

An audit compares source and target record by record (`docs/audit.md`). Its results are facts about ranges
of source offsets: they are merged (`ranges`), and what they are worth now is decided when they are read
(`standing`). So a state never has to be corrected because time went by or copying went on.

| node under `audits/`        | written by                                                      |
|-----------------------------|-----------------------------------------------------------------|
| `states/<route>/<topic>`    | who compared: an auditor, or the command; versioned, so merged  |
| `requests/<route>/<topic>`  | REST; an auditor counts its attempts, and deletes it when done  |
| `claims/<route>/<topic>`    | the auditor that carries a request out, ephemeral, with progress|
| `followers/<route>`         | the auditor that follows behind the copy of a route, ephemeral  |
| `auditors/<id>`             | each auditor, ephemeral                                         |

The state of a topic is bounded: one range for each partition, a count for each kind of difference, and the
first few findings. The whole result is a file of the auditor (`AuditRun.report`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import PlainSerializer

from ureplicator_common.model import Content

MAX_FINDINGS = 10
"""Findings in the state of a topic: the first ones."""
MAX_REASON_CHARACTERS = 300


def _ordered_counts(counts: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(counts.items()))


Counts = Annotated[Mapping[str, int], PlainSerializer(_ordered_counts)]
"""Kind of difference (`missing`, `altered`, ...) -> number."""


@dataclass(frozen=True, slots=True)
class Differences(Content):
    """Differences in a range: how many of each kind, and the first and last source offset they are at."""

    first: int
    last: int
    counts: Counts

    @property
    def total(self) -> int:
        return sum(self.counts.values())


@dataclass(frozen=True, slots=True)
class VerifiedRange(Content):
    """Source offsets of one partition, from `first` to before `next`, that were compared.

    `at_ms`: the time of the comparison. Where `next` was the position, everything that had been copied at
    that time was compared. `target_next`: target offset at which a comparison goes on; -1: not known.
    """

    first: int
    next: int
    at_ms: int
    target_next: int = -1
    differences: Differences | None = None


@dataclass(frozen=True, slots=True)
class Finding(Content):
    """One difference. -1: the record has no offset on that side."""

    partition: int
    kind: str
    source_offset: int = -1
    target_offset: int = -1


@dataclass(frozen=True, slots=True)
class AuditRun(Content):
    """The last audit of a topic that was requested and has ended.

    `outcome`: `DONE`, `CANCELLED`, `NOT_VERIFIED` with the reason, or why it failed. `repeated`: repeats that
    at least once allows; they are no differences. `report`: where its result lies, on the auditor's side.
    """

    id: str
    auditor: str
    started_ms: int
    ended_ms: int
    outcome: str
    records: int = 0
    repeated: int = 0
    differences: Counts = field(default_factory=dict)
    report: str = ""


DONE = "done"
CANCELLED = "cancelled"
NOT_VERIFIED = "not verified"
"""Nothing differs, and a partition or the whole range had nothing to compare. The reason follows it."""
EMPTY_RANGE = "there is no record in the range"
"""Reason of an audit that proves nothing, and casts no doubt on what was verified before."""


@dataclass(frozen=True, slots=True)
class TopicAudit(Content):
    """`audits/states/<route>/<topic>`: what was compared of the topics with these ids.

    `passed`: source offsets that an auditor passed behind the copy; `skipped`: those of them that it left out
    to keep to its byte rate. `failure`: why the last comparison behind the copy did not end; "": it did.
    """

    source_topic_id: str = ""
    target_topic_id: str = ""
    partitions: Mapping[int, VerifiedRange] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    last: AuditRun | None = None
    passed: int = 0
    skipped: int = 0
    failure: str = ""

    @property
    def differences(self) -> dict[str, int]:
        """Numbers of differences by kind, in all ranges."""
        found: dict[str, int] = {}
        for verified in self.partitions.values():
            for kind, count in verified.differences.counts.items() if verified.differences else ():
                found[kind] = found.get(kind, 0) + count
        return dict(sorted(found.items()))


@dataclass(frozen=True, slots=True)
class OffsetRange(Content):
    """Source offsets from `first` to before `next`."""

    first: int
    next: int


@dataclass(frozen=True, slots=True)
class RequestedAudit(Content):
    """`audits/requests/<route>/<topic>`: ranges of source offsets to compare, by partition.

    `bytes_per_s`: most that is read from each cluster; 0: the auditor's own limit. `attempts`: how often an
    auditor claimed it: one that ends its auditors, by their memory say, is given up at last.
    """

    id: str
    requested_ms: int
    ranges: Mapping[int, OffsetRange]
    bytes_per_s: int = 0
    attempts: int = 0

    @property
    def offsets(self) -> int:
        return sum(wanted.next - wanted.first for wanted in self.ranges.values())


@dataclass(frozen=True, slots=True)
class RunningAudit(Content):
    """`audits/claims/<route>/<topic>` (ephemeral): an audit under way, and how far it is."""

    auditor: str
    id: str
    since_ms: int
    offsets: int = 0
    compared: int = 0
    differences: int = 0


@dataclass(frozen=True, slots=True)
class Follower(Content):
    """`audits/followers/<route>` (ephemeral): the auditor that follows behind the copy of a route."""

    auditor: str
    since_ms: int


@dataclass(frozen=True, slots=True)
class LiveAuditor(Content):
    """`audits/auditors/<id>` (ephemeral)."""

    host: str = ""
    port: int = 0
    pid: int = 0
    version: str = ""
