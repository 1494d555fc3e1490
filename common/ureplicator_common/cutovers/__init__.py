"""Cutovers as ZooKeeper holds them: clients of some topics move from one cluster of a route to the other.

| node                       | written by                                                             |
|----------------------------|------------------------------------------------------------------------|
| `cutover-requests/<name>`  | REST: the plan, and what operators want of it                          |
| `cutovers/<name>`          | the leader: the state, and all that a successor needs to go on or back |

A name may be cut over again and again, in either direction: each request is a *run* of its own. What a run
leaves behind for later ones stays in the node: fences that are in force, and *turns*, the offsets at which
the direction of the copy changed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated

from pydantic import PlainSerializer

from ureplicator_common.kafka.acls import TopicAcl
from ureplicator_common.model import Content, Route
from ureplicator_common.znode_contents import RouteText

MAX_NAMED = 20
"""Late writes, and reasons for a wait, that a node names: the first ones."""
MAX_TURNS = 8
"""Changes of direction that are remembered, so that older offsets can be translated."""


class CutoverState(StrEnum):
    """The last thing that a cutover has achieved. See `ureplicator_controller.core.cutover.states`."""

    PLANNED = "PLANNED"
    FENCED = "FENCED"
    DRAINED = "DRAINED"
    VERIFIED = "VERIFIED"
    GROUPS = "GROUPS"
    OPEN = "OPEN"
    WATCHED = "WATCHED"
    DONE = "DONE"
    ABORTED = "ABORTED"


class FenceKind(StrEnum):
    """How writes at the source end: access rights, a program of the user's, or the operator's word."""

    ACL = "acl"
    COMMAND = "command"
    NONE = "none"


class Wanted(StrEnum):
    """What operators want of a plan."""

    PLAN = "plan"
    REHEARSE = "rehearse"
    START = "start"
    ABORT = "abort"


def _sorted_acls(acls: frozenset[TopicAcl]) -> list[TopicAcl]:
    return sorted(acls)


Acls = Annotated[frozenset[TopicAcl], PlainSerializer(_sorted_acls, return_type=list[TopicAcl])]
Offsets = Mapping[str, tuple[int, ...]]
"""Topic -> an offset for each of its partitions."""


@dataclass(frozen=True, slots=True)
class AclChange(Content):
    """Access rights that a fence adds to and removes from a cluster; to lift it is the reverse."""

    added: Acls = frozenset()
    removed: Acls = frozenset()

    @property
    def reversed(self) -> AclChange:
        return AclChange(added=self.removed, removed=self.added)

    def __or__(self, other: AclChange) -> AclChange:
        return AclChange(added=self.added | other.added, removed=self.removed | other.removed)

    def __sub__(self, other: AclChange) -> AclChange:
        return AclChange(added=self.added - other.added, removed=self.removed - other.removed)

    def of(self, topics: Collection[str]) -> AclChange:
        """The part on these topics: a fence has rights on topics by their names alone."""
        added, removed = (
            frozenset(acl for acl in acls if acl.name in topics)
            for acls in (self.added, self.removed)
        )
        return AclChange(added=added, removed=removed)


@dataclass(frozen=True, slots=True)
class CutoverPlan(Content):
    """What is moved, and how. `id`: a digest of all else, so that nobody carries out another plan.

    `route`: clients leave its source. `topic_patterns`, `group_patterns`: as operators gave them. `topics`:
    with their numbers of partitions; `groups`: names. `acls`: of the fence `acl`. `principal`: of the fleet,
    which goes on writing. `waits_for_groups`: until they have no members at the source; else their offsets
    are taken as they are. `aborts_transactions`: those that are open behind the fence are aborted.
    `verifies`: waits until an auditor has compared all of it. A run that is not OPEN `limit_s` after its
    fence was begun is aborted.
    """

    id: str
    route: RouteText
    topic_patterns: tuple[str, ...]
    group_patterns: tuple[str, ...] = ()
    topics: Mapping[str, int] = field(default_factory=dict)
    groups: tuple[str, ...] = ()
    fence: FenceKind = FenceKind.NONE
    fence_command: str = ""
    principal: str = ""
    acls: AclChange = AclChange()
    way_back: bool = True
    limit_s: float = 60.0
    waits_for_groups: bool = False
    aborts_transactions: bool = False
    verifies: bool = False


@dataclass(frozen=True, slots=True)
class CutoverRequest(Content):
    """`cutover-requests/<name>`. `request_id`: of the request that wrote this last. `run`: names one carrying
    out of the plan; an abort has that of the run to abort."""

    plan: CutoverPlan
    wanted: Wanted
    run: str
    request_id: str
    requested_ms: int = 0


@dataclass(frozen=True, slots=True)
class Step(Content):
    """A state that a run has reached, and the time that it took since the one before."""

    state: CutoverState
    at_ms: int
    took_ms: int


@dataclass(frozen=True, slots=True)
class LateWrite(Content):
    """Offsets that somebody wrote at the source behind the fence. `producers`: ids of those that the brokers
    know to have written since. `is_alarm`: after `OPEN`, so the records are at the source alone."""

    topic: str
    partition: int
    first: int
    next: int
    producers: tuple[int, ...] = ()
    at_ms: int = 0
    is_alarm: bool = False


@dataclass(frozen=True, slots=True)
class GroupOffset(Content):
    """Offset of a group on a target partition before the cutover wrote another one; -1: it had none."""

    topic: str
    partition: int
    offset: int = -1
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class Turn(Content):
    """Offsets at which the direction of the copy changed: `here` of the cluster that clients left, `there` of
    the one that they went to."""

    route: RouteText
    here: Offsets
    there: Offsets


@dataclass(frozen=True, slots=True)
class Cutover(Content):
    """`cutovers/<name>`: the run under way, or the last one.

    `wanted`: what the leader does about it; ABORT also where it gives up by itself, for `reason`. `fencing`:
    the fence is being raised, so it may have to be lifted though the state is PLANNED. `fences`: by cluster,
    what is in force there, also of former runs. `ends`: of the source, up to which it is drained; `held`:
    partitions (`topic/0`) with an open transaction behind the fence, whose end adds control records.
    `groups_before`: offsets at the target, for an abort. `groups`: outcome of each that was moved. `waits`:
    who is in the way.
    `rehearsed_ms`: time that each step took in a rehearsal. `fenced_ms`: the time at which the fence was
    begun, `opened_ms`: at which writers could go on at the target; 0: not yet. `late_offsets`: all that were
    written behind the fence; `late` names the first of them.
    """

    run: str
    plan: CutoverPlan
    state: CutoverState = CutoverState.PLANNED
    wanted: Wanted = Wanted.PLAN
    reason: str = ""
    fenced_ms: int = 0
    opened_ms: int = 0
    fencing: bool = False
    fences: Mapping[str, AclChange] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()
    ends: Offsets = field(default_factory=dict)
    held: tuple[str, ...] = ()
    groups_before: Mapping[str, tuple[GroupOffset, ...]] | None = None
    groups: Mapping[str, str] = field(default_factory=dict)
    verified: str = ""
    waits: tuple[str, ...] = ()
    late: tuple[LateWrite, ...] = ()
    late_offsets: int = 0
    turns: tuple[Turn, ...] = ()
    rehearsed_ms: Mapping[str, int] = field(default_factory=dict)

    @property
    def back(self) -> Route:
        """The route of the reverse copy."""
        return Route(self.plan.route.target, self.plan.route.source)
