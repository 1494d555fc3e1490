"""Tags of workers: draining and blacklisted, as intents that the leader acts on.

A node that cannot be read is written anew by the call that says what its tags are to be. The most slots
that the worker ever had are lost with it, so it gets the most that any worker may have: no next owner
fences too few transactional ids. An eviction that is lost with it is decided again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from ureplicator_common.coordination import Coordination, Node, create_or_set, version_of
from ureplicator_common.coordination.edit import Edit
from ureplicator_common.model import MAX_SLOTS, WorkerId
from ureplicator_common.printable import did_you_mean
from ureplicator_common.znode_contents import KnownWorker
from ureplicator_common.znodes.codec import UnreadableContent
from ureplicator_common.znodes.workers import (
    decode_known_worker,
    decode_live_worker,
    encode_known_worker,
)
from ureplicator_controller.api.http.preconditions import ALWAYS, Precondition
from ureplicator_controller.api.http.problems import Problem, conflict, not_found
from ureplicator_controller.api.services.fleet_cache import FleetCache
from ureplicator_controller.api.services.node_editor import NodeEditor, decoded
from ureplicator_controller.core.planning.bookkeeping import needed_workers
from ureplicator_controller.core.state.snapshot import Snapshot

Change = Callable[[KnownWorker | None], tuple[KnownWorker, bool]]
"""Function from the known worker before to the one after, and whether it is to be written. May raise a
Problem."""

_UNREADABLE = KnownWorker(max_slots=MAX_SLOTS)
"""Stands for a record that cannot be read."""


class WorkerService:
    """Writes the node of a known worker. Every call may raise Problem and Unavailable."""

    def __init__(
        self,
        *,
        coordination: Coordination,
        fleet: FleetCache,
        editor: NodeEditor,
        new_id: Callable[[], str],
    ) -> None:
        self._coordination = coordination
        self._fleet = fleet
        self._paths = fleet.paths
        self._editor = editor
        self._new_id = new_id

    def drain(self, worker: WorkerId, condition: Precondition = ALWAYS) -> KnownWorker:
        """Move all partitions away from a worker, and assign it no others."""
        return self._tag(worker, condition, drained=True)

    def undrain(self, worker: WorkerId, condition: Precondition = ALWAYS) -> KnownWorker:
        """Allow partitions on a worker again."""
        return self._tag(worker, condition, drained=False)

    def forget(self, worker: WorkerId, condition: Precondition = ALWAYS) -> None:
        """Request that the leader removes all nodes of a worker that is gone."""
        snapshot = self._fleet.current().snapshot
        if worker in snapshot.sessions or worker in snapshot.live:
            raise conflict(f"worker {worker} is live", field="worker", hint="stop it first")
        seen = (snapshot.known, snapshot.registered, snapshot.assignments)
        if not (worker in snapshot.unreadable_workers or any(worker in nodes for nodes in seen)):
            raise unknown_worker(worker, _ids(snapshot))
        needed = needed_workers(snapshot, [worker])
        if worker in needed:
            raise conflict(
                f"worker {worker} may still commit {needed[worker]}, which no other worker took over",
                field="worker",
                hint="its partitions move after the rebalance delay; excluded ones when they are resumed,"
                " and those of deleted topics are fenced twice a day",
            )

        def change(known: KnownWorker | None) -> tuple[KnownWorker, bool]:
            before = known or _UNREADABLE
            return replace(before, forgotten=True), not before.forgotten

        self._edit(worker, change, condition)

    def import_worker(
        self, worker: WorkerId, wanted: KnownWorker, *, dry_run: bool
    ) -> tuple[KnownWorker | None, KnownWorker]:
        """Set the tags of an export, also for a worker that has not joined yet; before and after.

        The highest number of slots that was ever known is kept: fencing a worker must cover all
        transactional ids that it may have.
        """

        def change(known: KnownWorker | None) -> tuple[KnownWorker, bool]:
            before = known or KnownWorker(max_slots=0)
            after = replace(
                before,
                max_slots=max(before.max_slots, wanted.max_slots),
                blacklisted=wanted.blacklisted,
                draining=wanted.draining,
            )
            return after, after != known

        return self._edit(worker, change, ALWAYS, dry_run=dry_run)

    def _tag(self, worker: WorkerId, condition: Precondition, *, drained: bool) -> KnownWorker:
        def change(known: KnownWorker | None) -> tuple[KnownWorker, bool]:
            before = known or self._live_worker(worker)
            after = replace(before, blacklisted=drained, draining=drained, forgotten=False)
            return after, after != before

        if self._coordination.get(self._paths.worker_known(worker)) is None:
            self._live_worker(worker)
        return self._edit(worker, change, condition)[1]

    def _edit(
        self,
        worker: WorkerId,
        change: Change,
        condition: Precondition,
        *,
        dry_run: bool = False,
    ) -> tuple[KnownWorker | None, KnownWorker]:
        """The worker before and after."""
        path, request_id = self._paths.worker_known(worker), self._new_id()

        def decide(node: Node | None) -> Edit[tuple[KnownWorker | None, KnownWorker]]:
            before = _known(node)
            after, is_changed = change(before)
            if dry_run or not (is_changed or before is _UNREADABLE):
                return Edit((before, after))
            data = encode_known_worker(replace(after, request_id=request_id))
            return Edit((before, after), [create_or_set(path, data, version_of(node))])

        def applied(node: Node | None) -> bool:
            known = _known(node)
            return known is not None and known.request_id == request_id

        return self._editor.edit(path, decide, applied, expected=condition.allows)

    def _live_worker(self, worker: WorkerId) -> KnownWorker:
        """A live worker that the leader has not registered yet."""
        path = self._paths.worker_live(worker)
        node = self._coordination.get(path)
        if node is None:
            raise unknown_worker(worker, _ids(self._fleet.current().snapshot))
        return KnownWorker(max_slots=decoded(path, node, decode_live_worker).slots)


def _known(node: Node | None) -> KnownWorker | None:
    """Record of a worker; one that cannot be read is replaced, and has the most slots possible."""
    if node is None:
        return None
    try:
        return decode_known_worker(node.data)
    except UnreadableContent:
        return _UNREADABLE


def _ids(snapshot: Snapshot) -> Iterable[WorkerId]:
    return {*snapshot.live, *snapshot.known}


def unknown_worker(worker: str, known: Iterable[str] = ()) -> Problem:
    """`known`: ids of which the refusal names one that is similar."""
    return not_found(
        f"no worker {worker!r} is live or known{did_you_mean(worker, known)}",
        field="worker",
        hint="GET /instances lists them",
    )
