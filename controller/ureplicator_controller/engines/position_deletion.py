"""The leader forgets the positions of topics that were deleted for good.

A position cannot be un-committed, and to delete a group's offset (Kafka's OffsetDelete) is not fenced:
a leader that freezes with that request in its hand and thaws when the topic is copied again would
delete the position of the new life. So "none" is committed instead (offset -1, which every reader takes
for no position), in a transaction, in the very order of a copier (`ureplicator_common.kafka.positions`)
and under the id that every copier fences when it starts (`engines.offsets`). The broker drops what is
left when the group's offsets expire.

Those who may still be able to commit (a frozen worker) are fenced first. Then the mark is taken off the
intent, at the version and the epoch of the proof, and the plan retires the topic.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace

from ureplicator_common.coordination import (
    Check,
    Conflict,
    Coordination,
    Node,
    OutcomeUnknown,
    Set,
    Unavailable,
)
from ureplicator_common.coordination.edit import Edit, edit
from ureplicator_common.kafka import ClusterUnavailable, Position
from ureplicator_common.kafka.errors import ErrorCode
from ureplicator_common.kafka.positions import CommitRefused, Fenced, TargetPartition
from ureplicator_common.model import Route, TopicKey
from ureplicator_common.znodes import Paths, decode_intent, encode_intent
from ureplicator_controller.core.positions.deletion import DeletablePositions, deletable_positions
from ureplicator_controller.core.state.snapshot import Snapshot
from ureplicator_controller.engines.position_renewal import Renewal

LOOK_S = 1.0
AGAIN_S = 5.0
WRITE_TIMEOUT_S = 5.0
NONE = Position(offset=-1)

log = logging.getLogger(__name__)

Proof = Callable[[], Snapshot | None]
"""The fleet, read after a `sync` while this process leads; None if it does not lead any more. Raises
Unavailable."""


def forget(renewal: Renewal, proven: Callable[[], DeletablePositions | None]) -> int | None:
    """How many positions were forgotten, None if they are not to be.

    Raises ClusterUnavailable, Fenced, CommitRefused, and Unavailable from the proof.
    """
    gone_with_their_topic: set[TargetPartition] = set()
    while True:
        renewal.store.initialise()
        what = proven()
        if what is None:
            return None
        renewal.store.fence(what.fence)
        stored = renewal.store.read({what.target_topic: range(what.partitions)})
        known = {
            target: NONE
            for target, position in stored.items()
            if position.offset >= 0 and target not in gone_with_their_topic
        }
        try:
            if known:
                renewal.store.commit(known)
            return len(known)
        except CommitRefused as error:
            if set(error.refused.values()) != {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name}:
                raise
            gone_with_their_topic |= error.refused.keys()


class PositionDeleter:
    """A thread that does so while this process leads; `look` is one round of it."""

    def __init__(
        self,
        *,
        coordination: Coordination,
        paths: Paths,
        renewals: Mapping[Route, Renewal],
        seen: Callable[[], Snapshot | None],
        proof: Proof,
    ) -> None:
        self._coordination = coordination
        self._paths = paths
        self._renewals = renewals
        self._seen = seen
        self._proof = proof
        self._settled: Snapshot | None = None
        """Nothing can be forgotten by this one; to find that out takes a walk over all partitions."""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="position-deleter", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stopping.set()
        self._thread.join(timeout=20)
        for renewal in self._renewals.values():
            renewal.client.close()

    def _run(self) -> None:
        wait_s = LOOK_S
        while not self._stopping.wait(wait_s):
            wait_s = LOOK_S
            try:
                wait_s = LOOK_S if self.look() else AGAIN_S
            except Unavailable as error:
                wait_s = AGAIN_S
                log.warning("positions not forgotten, next try in %g s: %s", wait_s, error)
            except (Conflict, OutcomeUnknown) as error:
                log.info("positions are forgotten, but not noted as such: %s", error)
            except Exception:
                wait_s = AGAIN_S
                log.exception("forgetting positions failed")

    def look(self) -> bool:
        """Whether nothing failed. What fails keeps no other waiting; a cluster that is away is asked
        once. Raises Unavailable, Conflict, OutcomeUnknown."""
        seen = self._seen()
        if seen is None or seen is self._settled:
            return True
        due = [key for key in sorted(deletable_positions(seen)) if key.route in self._renewals]
        self._settled = None if due else seen
        failed, away = False, set[Route]()
        for key in due:
            if key.route in away:
                continue
            try:
                self._forget(key, self._renewals[key.route])
            except (ClusterUnavailable, CommitRefused, Fenced) as error:
                failed = True
                log.warning("%s: positions not forgotten yet: %s", key, error)
                if isinstance(error, ClusterUnavailable):
                    away.add(key.route)
        return not failed

    def _forget(self, key: TopicKey, renewal: Renewal) -> None:
        proofs: list[Snapshot] = []

        def proven() -> DeletablePositions | None:
            snapshot = self._proof()
            if snapshot is None:
                return None
            proofs.append(snapshot)
            return deletable_positions(snapshot).get(key)

        count = forget(renewal, proven)
        if count is not None:
            self._note(key, epoch=proofs[-1].epoch)
            log.info("%s: %d positions forgotten", key, count)

    def _note(self, key: TopicKey, *, epoch: int) -> None:
        """Take the mark off, as the leader that gave the proof."""

        def decide(node: Node | None) -> Edit[None]:
            if done(node) or node is None:
                return Edit(None)
            data = encode_intent(replace(decode_intent(node.data), forget_positions=False))
            check = Check(self._paths.epoch, epoch)
            return Edit(None, [check, Set(node_path, data, node.stat.version)])

        def done(node: Node | None) -> bool:
            return node is None or not decode_intent(node.data).forget_positions

        node_path = self._paths.topic(key)
        edit(self._coordination, node_path, decide, done, timeout_s=WRITE_TIMEOUT_S)
