"""Deletion of offsets at the target of groups that are gone at the source (policy: `core.groups.gone`).

The groups that are gone are noted in `groups/<route>`, fenced by the leader's epoch, so that the next leader
goes on. What the sync gave a group is known to the leader that gave it: a group that is deleted while no
leader syncs is kept.

A deletion is not fenced, as a commit is not: the node is written, at the version that was read, just before
it. A leader that is suspended with one on its way may delete the offsets of a group that has come back
meanwhile: they are written again in the next rounds of the sync. The coordinator refuses it for a group with
consumers of the topic, so none of them is disturbed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from ureplicator_common.errors import OperatingError
from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_common.kafka.groups import EMPTY_STATES, ConsumerGroups, TopicPartition
from ureplicator_common.model import Route
from ureplicator_common.znode_contents import GoneGroup, GoneGroups
from ureplicator_common.znodes.codec import UnreadableContent
from ureplicator_common.znodes.routes import decode_gone, encode_gone
from ureplicator_controller.core.groups.decisions import GroupDecision, SyncState
from ureplicator_controller.core.groups.gone import (
    OwnOffsets,
    digest,
    doubt,
    due,
    noted,
    offsets_on,
    own_offsets,
)
from ureplicator_controller.engines.fenced_writer import FencedNode, FencedWriter
from ureplicator_controller.engines.syncs.reports import ReportNeeds

log = logging.getLogger(__name__)

DEAD = "Dead"
"""State of a group that its coordinator does not know."""
DELETED_AT_ONCE = 500
"""Groups whose offsets are deleted in one round."""
Gone = Mapping[str, GoneGroup]


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """A round of the sync that has ended. `listed`: all groups of the source; None: some brokers did not
    list theirs. `cluster_id`: the source's own id. `selected`: number of those that the route syncs.
    `targets`: topics of the route there."""

    epoch: int
    listed: Collection[str] | None
    cluster_id: str
    selected: int
    targets: Collection[str]
    is_frozen: bool
    may_write: Callable[[], bool]


@dataclass(frozen=True, slots=True)
class GoneOutcome:
    """`groups`: number of those that are gone; `left`: why the offsets of some that are due are not deleted,
    or ""."""

    groups: int = 0
    left: str = ""


class GoneGroupDeletion:
    """Deletion for one route. Belongs to the thread of its sync."""

    def __init__(
        self,
        *,
        route: Route,
        grace_s: float,
        source: ConsumerGroups,
        target: ConsumerGroups,
        needs: ReportNeeds,
    ) -> None:
        self._route = route
        self._grace_s = grace_s
        self._source = source
        self._target = target
        self._clock = needs.clock
        self._metrics = needs.metrics
        self._store = _Store(needs, needs.paths.gone_groups(route))
        self._own: dict[str, OwnOffsets] = {}
        self._epoch = 0
        self._cluster_id = ""

    def add(self, decision: GroupDecision, epoch: int) -> None:
        """Outcome of a decision of the round. One that holds on has no partitions, and changes nothing."""
        if epoch != self._epoch:  # another process may have led meanwhile
            self._own, self._epoch = {}, epoch
        if decision.state is SyncState.SYNCED and not decision.partitions:
            return
        own = own_offsets(decision) if not decision.share else None
        if own:
            self._own[decision.group] = own
        else:
            self._own.pop(decision.group, None)

    def end(self, round: Round) -> GoneOutcome:
        """Note the groups that are gone, and delete what is due."""
        self._enter(round.cluster_id)
        if round.listed is None:
            return GoneOutcome()
        try:
            return self._end(round, round.listed)
        except OperatingError as error:
            log.warning("%s: groups that are gone: %s", self._route, error)
            return GoneOutcome(left=f"groups that are gone at the source: {error}")

    def _enter(self, cluster_id: str) -> None:
        """Forget the offsets given to groups of another cluster: those named alike here have others."""
        if self._cluster_id not in ("", cluster_id):
            self._own = {}
        self._cluster_id = cluster_id

    def _end(self, round: Round, listed: Collection[str]) -> GoneOutcome:
        now_ms = self._clock.wall_ms()
        gone = noted(
            self._store.read(round.cluster_id), listed=listed, own=self._own, now_ms=now_ms
        )
        if not self._store.write(gone, round.epoch):
            return GoneOutcome(len(gone))
        self._own = {id: own for id, own in self._own.items() if id not in gone}
        now_due = due(gone, grace_s=self._grace_s, now_ms=now_ms)[:DELETED_AT_ONCE]
        left = doubt(gone=len(gone), listed=round.selected)
        if not now_due or left or round.is_frozen:
            return GoneOutcome(len(gone), left)
        ended, left = self._delete_due({id: gone[id] for id in now_due}, round)
        self._store.write({id: gone[id] for id in gone if id not in ended}, round.epoch)
        return GoneOutcome(len(gone) - len(ended), left)

    def _delete_due(self, groups: Gone, round: Round) -> tuple[set[str], str]:
        """Groups that need no note any more: their offsets are deleted, or they were used at the target. And
        why the first other one is left.

        Each coordinator of the source is asked once more: while groups move between brokers, no list may have
        them.
        """
        at_source = self._source.states([*groups])
        confirmed = {id: group for id, group in groups.items() if at_source[id] == DEAD}
        unused, used = self._compared(confirmed, round.targets)
        if not unused or not round.may_write() or not self._store.confirm(round.epoch):
            return used, ""
        deleted, left = self._delete(unused)
        return used | deleted, left

    def _compared(
        self, groups: Gone, targets: Collection[str]
    ) -> tuple[dict[str, OwnOffsets], set[str]]:
        """Groups that have the offsets of the sync, with these, and those that were used at the target. What
        could not be read is neither."""
        states, offsets = self._target.states([*groups]), self._target.offsets([*groups])
        unused: dict[str, OwnOffsets] = {}
        used: set[str] = set()
        for id, group in groups.items():
            state, found = states[id], offsets[id]
            if isinstance(state, ClusterUnavailable) or isinstance(found, ClusterUnavailable):
                continue
            own = offsets_on(found, targets)
            if state in EMPTY_STATES and digest(own) == group.offsets:
                unused[id] = own
            else:
                used.add(id)
        return unused, used

    def _delete(self, unused: Mapping[str, OwnOffsets]) -> tuple[set[str], str]:
        """Groups whose offsets are deleted, and why those of the first other one are not."""
        deleted: set[str] = set()
        left = ""
        for id, refused in self._target.delete_offsets(unused).items():
            if isinstance(refused, ClusterUnavailable) or refused:
                left = left or f"{id} is not deleted at the target: {_text(refused)}"
            else:
                deleted.add(id)
                self._report(id, unused[id])
        return deleted, left

    def _report(self, id: str, own: OwnOffsets) -> None:
        log.warning(
            "%s: group %s is gone at the source: its offsets on %d partitions at the target are deleted",
            self._route,
            id,
            len(own),
        )
        self._metrics.groups_deleted.labels(str(self._route)).inc()


def _text(refused: Mapping[TopicPartition, str] | ClusterUnavailable) -> str:
    if isinstance(refused, ClusterUnavailable):
        return str(refused)
    return ", ".join(sorted(set(refused.values())))


class _Store:
    """`groups/<route>`: read once a round, written where something has changed."""

    def __init__(self, needs: ReportNeeds, path: str) -> None:
        writer = FencedWriter(needs.coordination, paths=needs.paths, metrics=needs.metrics)
        self._node = FencedNode(needs.coordination, path, writer)
        self._known: Gone | None = None
        self._cluster_id = ""

    def read(self, cluster_id: str) -> Gone:
        """Groups that were noted on this cluster. Nothing for a content that cannot be read: then groups are
        noted anew. Raises Unavailable."""
        data = self._node.read()
        self._known, self._cluster_id = None, cluster_id
        try:
            found = GoneGroups() if data is None else decode_gone(data)
        except UnreadableContent as error:
            log.warning("%s is written anew: %s", self._node.path, error)
            return {}
        is_same = found.cluster_id == cluster_id
        if is_same or not found.groups:
            self._known = found.groups
        if is_same or not found.cluster_id:
            return found.groups
        if found.groups:
            log.warning("%s: the source is another cluster, its notes are dropped", self._node.path)
        return {}

    def write(self, gone: Gone, epoch: int) -> bool:
        """True if it is written down. Raises Unavailable."""
        return gone == self._known or self._write(gone, epoch)

    def confirm(self, epoch: int) -> bool:
        """True if this process leads, and what it knows is written down. Raises Unavailable."""
        return self._write(self._known or {}, epoch)

    def _write(self, gone: Gone, epoch: int) -> bool:
        if not self._node.write(encode_gone(GoneGroups(gone, self._cluster_id)), epoch=epoch):
            return False
        self._known = gone
        return True
