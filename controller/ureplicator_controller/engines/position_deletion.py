"""Deletion of positions: the leader deletes those of topics that were deleted with `positions=forget`.

A commit cannot be undone, and Kafka's OffsetDelete is not fenced: a leader that freezes with that
request in flight and resumes when the topic is copied again would delete a position of its new life.
So the leader commits "no position" instead (offset -1, which every reader takes for no position), in a
transaction, in the same order as a copier (`ureplicator_common.kafka.positions`) and under the id that
every copier fences when it starts (`position_renewal`). The broker drops the rest when the group's
offsets expire.

Producers that may still be able to commit (a frozen worker) are fenced first. Then the request is
cleared in the intent, at the version and the epoch of the proof, and the plan retires the topic.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import ClassVar, NamedTuple, TypeVar

from ureplicator_common.coordination import (
    Conflict,
    Coordination,
    Node,
    OutcomeUnknown,
    Set,
    Unavailable,
)
from ureplicator_common.coordination.edit import Edit, edit
from ureplicator_common.kafka import ClusterUnavailable, PartitionUnavailable, Position
from ureplicator_common.kafka.errors import ErrorCode
from ureplicator_common.kafka.positions import CommitRefused, TargetPartition
from ureplicator_common.kafka.provenance import NOT_MAPPED, UNKNOWN_END, Provenance
from ureplicator_common.kafka.transactions.coordinator_requests import Fenced
from ureplicator_common.kafka.transactions.position_rows import all_readable
from ureplicator_common.model import Route, TopicKey
from ureplicator_common.portions import portions
from ureplicator_common.znode_contents import NO_OFFSET, TopicIntent
from ureplicator_common.znodes.paths import Paths
from ureplicator_common.znodes.topics import decode_intent, encode_intent
from ureplicator_controller.core.positions.deletion import DeletablePositions, deletable_positions
from ureplicator_controller.core.state.snapshot import Snapshot
from ureplicator_controller.engines.fenced_writer import fenced
from ureplicator_controller.engines.periodic_thread import PeriodicThread
from ureplicator_controller.engines.position_renewal import STOP_TIMEOUT_S, Renewal

POLL_INTERVAL_S = 1.0
RETRY_INTERVAL_S = 5.0
WRITE_TIMEOUT_S = 5.0
NO_POSITION = Position(offset=NO_OFFSET)

log = logging.getLogger(__name__)

ProveLeadership = Callable[[], Snapshot | None]
"""The fleet, read after a `sync` while this process leads; None if it does not lead any more. Raises
Unavailable."""
Due = TypeVar("Due")


class Deleted(NamedTuple):
    """`epoch`: leader epoch of the proof."""

    positions: int
    epoch: int


def delete_positions(
    renewal: Renewal, proven: Callable[[], DeletablePositions | None]
) -> Deleted | None:
    """Delete the positions of a topic; None if the proof fails.

    Raises ClusterUnavailable, PartitionUnavailable if the target does not show a position, Fenced,
    CommitRefused, and Unavailable from the proof.
    """
    without_topic: set[TargetPartition] = set()
    while True:
        renewal.store.initialise()
        due = proven()
        if due is None:
            return None
        renewal.store.fence(due.fence)
        stored = all_readable(renewal.store.read({due.target_topic: range(due.partitions)}))
        known = {
            target: forgotten(position)
            for target, position in stored.items()
            if position.offset >= 0 and target not in without_topic
        }
        try:
            if known:
                renewal.store.commit(known)
            return Deleted(len(known), due.epoch)
        except CommitRefused as error:
            if set(error.refused.values()) != {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name}:
                raise
            without_topic |= error.refused.keys()


def forgotten(stored: Position) -> Position:
    """No position. Its metadata keep the number of the partition's chunks in the offset map, which outlive
    the position: later owners thin them out by that."""
    former = Provenance.decode(stored.metadata)
    if former is None or not former.map_chunks:
        return NO_POSITION
    kept = replace(former, target_end=UNKNOWN_END, mapped=NOT_MAPPED, markers=0)
    return Position(NO_OFFSET, metadata=kept.encode())


class PositionThread(ABC):
    """Thread that writes positions while this process leads; `run_once` is one round.

    Subclasses say which topics are due, and write the positions of at most `portion` of a route at a time.
    """

    name: ClassVar[str]
    portion: ClassVar[int] = 1

    def __init__(
        self,
        *,
        coordination: Coordination,
        paths: Paths,
        renewals: Mapping[Route, Renewal],
        seen: Callable[[], Snapshot | None],
        proof: ProveLeadership,
    ) -> None:
        self._coordination = coordination
        self._paths = paths
        self._renewals = renewals
        self._seen = seen
        self._proof = proof
        self._settled: Snapshot | None = None
        """The last snapshot without due topics: finding that out takes a scan of all partitions."""
        self._thread = PeriodicThread(self._round, name=self.name, first_after_s=POLL_INTERVAL_S)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._thread.stop(STOP_TIMEOUT_S)
        for renewal in self._renewals.values():
            renewal.client.close()

    def _round(self) -> float:
        try:
            return POLL_INTERVAL_S if self.run_once() else RETRY_INTERVAL_S
        except Unavailable as error:
            log.warning("%s: retrying in %g s: %s", self.name, RETRY_INTERVAL_S, error)
        except (Conflict, OutcomeUnknown) as error:
            log.info(
                "%s: positions written, but the intent still requests it: %s", self.name, error
            )
            return POLL_INTERVAL_S
        except Exception:
            log.exception("%s failed", self.name)
        return RETRY_INTERVAL_S

    def run_once(self) -> bool:
        """One round; False if a topic failed. A failure delays no other portion; a cluster that is
        unavailable is tried once. Raises Unavailable, Conflict, OutcomeUnknown."""
        seen = self._seen()
        if seen is None or seen is self._settled:
            return True
        due = [key for key in sorted(self._due(seen)) if key.route in self._renewals]
        self._settled = None if due else seen
        failed, unavailable = False, set[Route]()
        for keys in _portions(due, self.portion):
            route = keys[0].route
            if route in unavailable:
                continue
            try:
                self._write(keys, self._renewals[route])
            except (ClusterUnavailable, CommitRefused, Fenced) as error:
                failed = True
                log.warning("%s: %s: not done yet: %s", self.name, keys[0], error)
                of_topic = isinstance(error, PartitionUnavailable)
                if isinstance(error, ClusterUnavailable) and not of_topic:
                    unavailable.add(route)
        return not failed

    @abstractmethod
    def _due(self, snapshot: Snapshot) -> Collection[TopicKey]:
        """Topics whose positions may be written now."""

    @abstractmethod
    def _write(self, keys: Sequence[TopicKey], renewal: Renewal) -> None:
        """Write the positions of topics of a route, then the outcomes in their intents. Raises Unavailable,
        Conflict, OutcomeUnknown, ClusterUnavailable, CommitRefused, Fenced."""

    def _proven(
        self, find: Callable[[Snapshot], Mapping[TopicKey, Due]], keys: Sequence[TopicKey]
    ) -> dict[TopicKey, Due]:
        """Positions of the topics to write while this process leads."""
        snapshot = self._proof()
        found = {} if snapshot is None else find(snapshot)
        return {key: found[key] for key in keys if key in found}

    def _edit_intent(
        self, key: TopicKey, change: Callable[[TopicIntent], TopicIntent], *, epoch: int
    ) -> None:
        """Change the intent, with the epoch of the proof."""

        def decide(node: Node | None) -> Edit[None]:
            if node is None or done(node):
                return Edit(None)
            data = encode_intent(change(decode_intent(node.data)))
            changed = Set(path, data, node.stat.version)
            return Edit(None, fenced([changed], paths=self._paths, epoch=epoch))

        def done(node: Node | None) -> bool:
            intent = decode_intent(node.data) if node else None
            return intent is None or change(intent) == intent

        path = self._paths.topic(key)
        edit(self._coordination, path, decide, done, timeout_s=WRITE_TIMEOUT_S)


def _portions(due: Sequence[TopicKey], size: int) -> Iterator[Sequence[TopicKey]]:
    """Portions of topics of one route."""
    for _, of_route in groupby(due, key=lambda key: key.route):
        yield from portions(list(of_route), size)


class PositionDeleter(PositionThread):
    """Deletes the positions of topics that were deleted with them."""

    name = "position deletion"

    def _due(self, snapshot: Snapshot) -> Collection[TopicKey]:
        return deletable_positions(snapshot)

    def _write(self, keys: Sequence[TopicKey], renewal: Renewal) -> None:
        (key,) = keys
        deleted = delete_positions(
            renewal, lambda: self._proven(deletable_positions, keys).get(key)
        )
        if deleted is not None:
            self._edit_intent(key, without_request, epoch=deleted.epoch)
            log.info("%s: %d positions deleted", key, deleted.positions)


def without_request(intent: TopicIntent) -> TopicIntent:
    """The intent after the deletion."""
    return replace(intent, forget_positions=False)
