"""Facts that a plan of a cutover is judged by, and what is found. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

from ureplicator_common.audits.standing import Standing
from ureplicator_common.cutovers import CutoverPlan
from ureplicator_common.kafka import PartitionUnavailable
from ureplicator_common.kafka.acls import TopicAcl
from ureplicator_common.kafka.list_offsets import TopicPartition
from ureplicator_common.kafka.transactions.writers import Producers, TopicTransactions
from ureplicator_common.model import Partition, Route, RouteSettings, TopicKey
from ureplicator_common.znode_contents import TopicIntent
from ureplicator_controller.core.groups.decisions import GroupDecision
from ureplicator_controller.core.state.external_view import ExternalView
from ureplicator_controller.core.state.snapshot import Snapshot
from ureplicator_controller.core.syncs.configs import TopicDrift


class Level(StrEnum):
    """Weight of a finding: a plan with one that blocks is not carried out."""

    OK = "ok"
    WARNING = "warning"
    BLOCKS = "blocks"


@dataclass(frozen=True, slots=True)
class PlanFinding:
    """`subject`: what it is about, such as a topic. `advice`: what to do about it, "" for nothing."""

    subject: str
    check: str
    level: Level
    text: str
    advice: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts:
    """Groups with offsets on the topics of the plan.

    `chosen`: those that the patterns stand for; `left`: all others. `active`: with members at the source.
    `unmatched`: patterns that stand for none. `unlisted`: why groups may be missing, or "".
    """

    chosen: Sequence[GroupDecision] = ()
    left: Sequence[str] = ()
    active: frozenset[str] = frozenset()
    unmatched: Sequence[str] = ()
    unlisted: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRights:
    """Access rights of a cluster on topics; `acls` None: it has no authorizer. `opens_topics`: those that no
    right concerns may be open to everyone. `unread`: why they are not known, or ""."""

    acls: frozenset[TopicAcl] | None = None
    opens_topics: bool = False
    unread: str = ""


@dataclass(frozen=True, kw_only=True)
class WriterFacts:
    """Writers of the source, without the fleet. `producers`: of the last minutes, also of other topics of the
    route; `names`: their transactional ids, as far as they are shown."""

    transactions: TopicTransactions = field(default_factory=TopicTransactions)
    producers: Mapping[TopicPartition, Producers | PartitionUnavailable] = field(
        default_factory=dict
    )
    names: Mapping[int, str] = field(default_factory=dict)

    @cached_property
    def topics_of(self) -> Mapping[int, frozenset[str]]:
        """Topics that each producer has written."""
        found: dict[int, set[str]] = {}
        for (topic, _), seen in self.producers.items():
            for id in seen if isinstance(seen, Mapping) else ():
                found.setdefault(id, set()).add(topic)
        return {id: frozenset(topics) for id, topics in found.items()}

    def name(self, id: int) -> str:
        return self.names.get(id, f"producer id {id}")


@dataclass(frozen=True, kw_only=True)
class Facts:
    """All that was read for a plan.

    `routes`: settings of the routes that are configured. `unmatched`: patterns of topics that stand for none.
    `drift`: topics compared with their targets, `drift_back`: as the way back would. `standings`: of audits.
    `rights_here`, `rights_there`: of the source, and of the target once it lets clients in. `own_principals`:
    of the fleet, `principal` that at the source, "" unknown. `fence_refusal`: why the fence cannot be raised,
    or "".
    """

    name: str
    plan: CutoverPlan
    snapshot: Snapshot
    view: ExternalView
    routes: Mapping[Route, RouteSettings]
    unmatched: Sequence[str] = ()
    drift: Sequence[TopicDrift] = ()
    drift_back: Sequence[TopicDrift] = ()
    standings: Mapping[TopicKey, Standing] = field(default_factory=dict)
    groups: GroupFacts = GroupFacts()
    rights_here: ClusterRights = ClusterRights()
    rights_there: ClusterRights = ClusterRights()
    own_principals: frozenset[str] = frozenset()
    principal: str = ""
    fence_refusal: str = ""
    writers: WriterFacts = WriterFacts()
    now_ms: int = 0

    @property
    def route(self) -> Route:
        return self.plan.route

    @property
    def back(self) -> Route:
        return Route(self.route.target, self.route.source)

    @cached_property
    def intents(self) -> Mapping[str, TopicIntent]:
        """Intents of the topics of the plan."""
        keys = {topic: TopicKey(self.route, topic) for topic in self.plan.topics}
        return {topic: self.snapshot.topics[key].value for topic, key in keys.items()}

    def partitions(self) -> Iterator[Partition]:
        for topic, count in self.plan.topics.items():
            for number in range(count):
                yield Partition(self.route, topic, number)


def or_ok(found: Iterable[PlanFinding], check: str, subject: str, text: str) -> list[PlanFinding]:
    """What was found, or that all is well."""
    return list(found) or [PlanFinding(subject, check, Level.OK, text)]


def counted(number: int, noun: str) -> str:
    """`1 topic`, `2 topics`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
