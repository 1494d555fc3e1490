"""What operators ask of workers and of the fleet: intents that the leader acts on, as the whitelist
is what they ask of topics.

Written like every intent (`coordination.edit`): at the version that was read, with a request id
that tells whether a write without an answer was made. The leader writes to the same nodes (a
worker's slots, an eviction), so a version that has moved on is the usual case, and is decided anew.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import TypeVar

from ureplicator_common.coordination import Coordination, Node, create_or_set, version_of
from ureplicator_common.coordination.edit import Edit, edit
from ureplicator_common.model import KnownWorker, Switches, WorkerId
from ureplicator_common.znodes import (
    UnreadableContent,
    decode_known_worker,
    decode_live_worker,
    decode_switches,
    encode_known_worker,
    encode_switches,
)
from ureplicator_controller.api.http.preconditions import ALWAYS, Precondition
from ureplicator_controller.api.http.problems import Problem, not_found
from ureplicator_controller.api.services.fleet_cache import FleetCache
from ureplicator_controller.api.services.topics import WRITE_TIMEOUT_S

T = TypeVar("T")


class Wishes:
    """Writes to the nodes that are not of one topic."""

    def __init__(
        self, *, coordination: Coordination, fleet: FleetCache, new_id: Callable[[], str]
    ) -> None:
        self._coordination = coordination
        self._fleet = fleet
        self._new_id = new_id

    def leave(self, worker: WorkerId, condition: Precondition = ALWAYS) -> KnownWorker:
        """Empty a worker at once, and give it nothing more. Raises Problem, Unavailable."""
        return self._tag(worker, condition, leaving=True)

    def take_back(self, worker: WorkerId, condition: Precondition = ALWAYS) -> KnownWorker:
        return self._tag(worker, condition, leaving=False)

    def _tag(self, worker: WorkerId, condition: Precondition, *, leaving: bool) -> KnownWorker:
        path = self._fleet.paths.worker_known(worker)
        request_id = self._new_id()

        def decide(node: Node | None) -> Edit[KnownWorker]:
            known = _known(path, node) if node else self._newcomer(worker)
            tagged = replace(known, blacklisted=leaving, draining=leaving)
            if tagged == known:
                return Edit(tagged)
            data = encode_known_worker(replace(tagged, request_id=request_id))
            return Edit(tagged, [create_or_set(path, data, version_of(node))])

        def applied(node: Node | None) -> bool:
            return node is not None and _known(path, node).request_id == request_id

        if self._coordination.get(path) is None:
            self._newcomer(worker)
        return self._edit(path, decide, applied, condition)

    def restore(
        self, worker: WorkerId, wanted: KnownWorker, *, dry_run: bool
    ) -> tuple[KnownWorker | None, KnownWorker]:
        """Tags as in an export, before and after, also of a worker that is not there (yet).

        The most slots ever count: whoever fences it must know all ids that it may have.
        """
        path = self._fleet.paths.worker_known(worker)
        request_id = self._new_id()

        def decide(node: Node | None) -> Edit[tuple[KnownWorker | None, KnownWorker]]:
            before = _known(path, node) if node else None
            there = before or KnownWorker(max_slots=0)
            after = replace(
                there,
                max_slots=max(there.max_slots, wanted.max_slots),
                blacklisted=wanted.blacklisted,
                draining=wanted.draining,
            )
            if after == before or dry_run:
                return Edit((before, after))
            data = encode_known_worker(replace(after, request_id=request_id))
            return Edit((before, after), [create_or_set(path, data, version_of(node))])

        def applied(node: Node | None) -> bool:
            return node is not None and _known(path, node).request_id == request_id

        return self._edit(path, decide, applied, ALWAYS)

    def _edit(
        self,
        path: str,
        decide: Callable[[Node | None], Edit[T]],
        applied: Callable[[Node | None], bool],
        condition: Precondition,
    ) -> T:
        self._coordination.sync(path)
        result = edit(
            self._coordination,
            path,
            decide,
            applied,
            timeout_s=WRITE_TIMEOUT_S,
            expected=condition.allows,
        )
        self._fleet.settle(path)
        return result

    def switch(
        self, change: Callable[[Switches], Switches], condition: Precondition = ALWAYS
    ) -> Switches:
        """The switches afterwards. Raises Problem, Unavailable."""
        return self._switch(change, self._new_id(), condition)

    def rebalance(self, condition: Precondition = ALWAYS) -> str:
        """Ask for a rebalance now; the request's id."""
        request_id = self._new_id()
        asked = partial(replace, rebalance_requested=request_id)
        self._switch(asked, request_id, condition)
        return request_id

    def _switch(
        self, change: Callable[[Switches], Switches], request_id: str, condition: Precondition
    ) -> Switches:
        path = self._fleet.paths.settings

        def decide(node: Node | None) -> Edit[Switches]:
            there = _switches(path, node)
            wanted = change(there)
            if wanted == there:
                return Edit(wanted)
            data = encode_switches(replace(wanted, request_id=request_id))
            return Edit(wanted, [create_or_set(path, data, version_of(node))])

        def applied(node: Node | None) -> bool:
            return _switches(path, node).request_id == request_id

        return self._edit(path, decide, applied, condition)

    def _newcomer(self, worker: WorkerId) -> KnownWorker:
        """One that lives, and that the leader has not written down yet."""
        node = self._coordination.get(self._fleet.paths.worker_live(worker))
        if node is None:
            raise unknown_worker(worker)
        try:
            return KnownWorker(max_slots=decode_live_worker(node.data).slots)
        except UnreadableContent as error:
            raise _unreadable(self._fleet.paths.worker_live(worker), error) from error


def unknown_worker(worker: str) -> Problem:
    return not_found(
        f"no worker {worker!r} lives or is remembered",
        field="worker",
        hint="GET /instances lists them",
    )


def _known(path: str, node: Node) -> KnownWorker:
    try:
        return decode_known_worker(node.data)
    except UnreadableContent as error:
        raise _unreadable(path, error) from error


def _switches(path: str, node: Node | None) -> Switches:
    try:
        return decode_switches(node.data) if node else Switches()
    except UnreadableContent as error:
        raise _unreadable(path, error) from error


def _unreadable(path: str, error: Exception) -> Problem:
    return Problem(
        HTTPStatus.INTERNAL_SERVER_ERROR,
        f"{path} in ZooKeeper cannot be read: {error}",
        hint="mend or remove that node by hand",
    )
