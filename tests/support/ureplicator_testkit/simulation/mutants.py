"""The product with one safeguard removed: proof that the simulation detects its absence.

Each mutant removes one safeguard where it is implemented. The invariants that production checks
(`planning.invariants`) may refuse the first step already, as they would in production. Mutants called
`unchecked` have these checks off, to see that the run itself reveals the fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from ureplicator_common.coordination import Check, OutcomeUnknown, Unavailable
from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_common.model import Route, WorkerId
from ureplicator_controller.core.balance import pools as pools_module
from ureplicator_controller.core.balance.pools import Offer
from ureplicator_controller.core.planning import handover as handover_module
from ureplicator_controller.core.planning import holders as holders_module
from ureplicator_controller.core.planning import membership as membership_module
from ureplicator_controller.core.planning.invariants import InvariantChecker
from ureplicator_controller.core.planning.plan import Plan, plan
from ureplicator_controller.core.positions import orphaned as orphaned_module
from ureplicator_controller.core.state import mass_loss as mass_loss_module
from ureplicator_controller.core.state.by_topic import TopicMemo
from ureplicator_controller.core.state.fleet_index import FleetIndexer
from ureplicator_controller.core.state.snapshot import Snapshot
from ureplicator_controller.engines import control_loop as control_loop_module
from ureplicator_controller.engines import fenced_writer as fenced_writer_module
from ureplicator_controller.engines import position_renewal as position_renewal_module
from ureplicator_testkit.kafka.ledger import NO_POSITION
from ureplicator_testkit.simulation import position_threads as position_threads_module
from ureplicator_testkit.simulation import waiting as waiting_module
from ureplicator_testkit.simulation.fleet import TAG
from ureplicator_testkit.simulation.judge import ROUTE
from ureplicator_worker.copier import committer as committer_module
from ureplicator_worker.copier.committer import MappedSegments
from ureplicator_worker.copier.lane import Progress
from ureplicator_worker.copier.messages import Begun
from ureplicator_worker.copier.ownership.thread import Ownership
from ureplicator_worker.copier.position_values import Commitment
from ureplicator_worker.core.instructions import Fence
from ureplicator_worker.engines import ownership_proof as proof_module
from ureplicator_worker.engines.fencing import Fencer
from ureplicator_worker.engines.publisher import NodePublisher
from ureplicator_worker.lifeline.messages import Grant, ProofResponse

Patch = tuple[Any, str, Any]
"""Object, attribute, and its replacement."""


def _without_delay(seen: Snapshot, now_s: float, indexer: FleetIndexer) -> Plan:
    """Plan without a delay for lost workers."""
    return plan(replace(seen, delays=replace(seen.delays, rebalance_s=0.0)), now_s, indexer)


def _with_less_delay(seen: Snapshot, now_s: float, indexer: FleetIndexer) -> Plan:
    """Plan with seven tenths of the delay for lost workers."""
    rebalance_s = 0.7 * seen.delays.rebalance_s
    return plan(replace(seen, delays=replace(seen.delays, rebalance_s=rebalance_s)), now_s, indexer)


class _Forgetful:
    """A store of positions that forgets what it is to commit."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def commit(self, positions: Iterable[Any]) -> None:
        self._store.commit(dict.fromkeys(positions, NO_POSITION))


def _renewed_empty(renewal: Any, orphaned: Any) -> int:
    return _RENEW(replace(renewal, store=_Forgetful(renewal.store)), orphaned)


def _unchanged(self: Any, inputs: Any, compute: Any, *, topics: Any) -> Any:
    """Keeps the first result of each topic."""
    present = {key for keys in topics for key in keys}
    self.results = {key: self.results.get(key) or compute(key) for key in present}
    self.changed = present
    return self.results


def _one_slot_each(snapshot: Snapshot, workers: Iterable[WorkerId]) -> dict[WorkerId, Offer]:
    """All workers get the same share."""
    return dict.fromkeys(workers, Offer())


def _tagged(snapshot: Snapshot, workers: Iterable[WorkerId]) -> dict[WorkerId, Offer]:
    """All workers have the tag that routes ask for."""
    found = _OFFERS(snapshot, workers).items()
    return {worker: replace(offer, tags=frozenset({TAG})) for worker, offer in found}


def _ids_of_one_route(self: Any, fence: Fence) -> Sequence[str]:
    """Fences former processes on the first route only."""
    return _IDS(self, fence) if fence.slot is not None or fence.route == ROUTE else ()


def _same_epoch(previous: int, leader_epoch: int) -> int:
    return max(previous, leader_epoch << handover_module.EPOCH_SHIFT)


def _granted_unproven(self: Any, request: Any) -> ProofResponse:
    """Grants everything without reading ZooKeeper."""
    path = self._paths.assignment(self._worker)
    assigned = self._assignment({path: self._coordination.get(path)})
    grants = {
        partition: Grant(
            epoch, partition.topic, assigned[partition][1] if partition in assigned else ()
        )
        for partition, epoch in request.partitions.items()
    }
    return ProofResponse(request.request_id, grants, {})


def _read_unsynced(self: Any, paths: Sequence[str]) -> Any:
    """Read what the server has, however old that is."""
    return {path: self._coordination.get(path) for path in paths}


def _without_fence(checked: Callable[..., Grant | str]) -> Callable[..., Grant | str]:
    def grant_or_refusal(*about: Any, **facts: Any) -> Grant | str:
        result = checked(*about, **facts)
        return replace(result, fence=()) if isinstance(result, Grant) else result

    return grant_or_refusal


def _unchecked(path: str, version: int) -> Check:
    return Check(path, -1)


def _without_leader(checked: Callable[..., Grant | str]) -> Callable[..., Grant | str]:
    def grant_or_refusal(*about: Any, **facts: Any) -> Grant | str:
        result = checked(*about, **facts)
        return replace(result, fence=result.fence[:-1]) if isinstance(result, Grant) else result

    return grant_or_refusal


def _ignores_outcome(edit: Callable[..., Any]) -> Callable[..., Any]:
    """Responds 2xx whatever the outcome of the write."""

    def ignoring(coordination: Any, path: str, decide: Any, *about: Any, **more: Any) -> Any:
        decided: list[Any] = []

        def deciding(node: Any) -> Any:
            decided.append(decide(node))
            return decided[-1]

        try:
            return edit(coordination, path, deciding, *about, **{**more, "timeout_s": 0.0})
        except (OutcomeUnknown, Unavailable):
            return decided[-1].result if decided else None

    return ignoring


def _nothing(*_: Any, **__: Any) -> tuple[()]:
    return ()


def _read_first(self: Any, response: ProofResponse) -> None:
    """Reads the positions before the other ids are fenced."""
    store, own_read = self._store, self._store.read
    wanted: dict[str, list[int]] = {}
    for partition, grant in response.granted.items():
        wanted.setdefault(grant.target_topic, []).append(partition.number)
    try:
        early = own_read(wanted)
        store.read = lambda _: early
    except ClusterUnavailable:
        early = {}
    try:
        _ON_PROOF(self, response)
    finally:
        store.read = own_read


def _ahead(begun: Begun, progress: Progress, maps: MappedSegments) -> Commitment:
    """Commits one record that the target has not acknowledged."""
    item = _COMMITMENT(begun, progress, maps)
    return replace(item, position=item.position + 1)


class _NoFences(holders_module.FenceIds):
    def of(self, route: Route, workers: Sequence[WorkerId]) -> tuple[str, ...] | None:
        return ()


class _Everything:
    """Contains every value."""

    def __contains__(self, _: object) -> bool:
        return True


_RENEW = position_renewal_module.renew
_OFFERS = pools_module.offers
_IDS = Fencer._ids
_ON_PROOF = Ownership._on_proof
_COMMITMENT = committer_module.commitment

_UNCHECKED: Sequence[Patch] = (
    (InvariantChecker, "_check_fence", _nothing),
    (InvariantChecker, "_check_ideal", _nothing),
    (InvariantChecker, "check_assignment", _nothing),
)

MUTANTS: Mapping[str, Sequence[Patch]] = {
    "take-before-give": ((holders_module.HolderRules, "live_holders", _nothing),),
    "no-fence-written": ((handover_module, "FenceIds", _NoFences),),
    "no-fence-written, unchecked": ((handover_module, "FenceIds", _NoFences), *_UNCHECKED),
    "no-fence-done": (
        (proof_module, "grant_or_refusal", _without_fence(proof_module.grant_or_refusal)),
    ),
    "leader-not-fenced": (
        (proof_module, "grant_or_refusal", _without_leader(proof_module.grant_or_refusal)),
    ),
    "renewed-without-fence": ((orphaned_module, "FenceIds", _NoFences),),
    "no-proof": ((proof_module.OwnershipProver, "prove", _granted_unproven),),
    "no-sync": ((proof_module.OwnershipProver, "_read", _read_unsynced),),
    "commit-ahead": ((committer_module, "commitment", _ahead),),
    "position-before-fence": ((Ownership, "_on_proof", _read_first),),
    "former-process-not-fenced": ((Fencer, "_max_slots", lambda self: 0),),
    "former-process-not-fenced, second route": ((Fencer, "_ids", _ids_of_one_route),),
    "former-process-returns": ((NodePublisher, "own_sessions", lambda self: _Everything()),),
    "epoch-not-checked": ((fenced_writer_module, "Check", _unchecked),),
    "no-delay": ((control_loop_module, "plan", _without_delay),),
    "less-delay": ((control_loop_module, "plan", _with_less_delay),),
    "renewed-without-position": ((position_threads_module, "renew", _renewed_empty),),
    "former-topics-kept": ((TopicMemo, "update", _unchanged),),
    "slots-not-counted": ((pools_module, "offers", _one_slot_each),),
    "tags-not-seen": ((pools_module, "offers", _tagged),),
    "leave-not-seen": ((membership_module, "announces_leaving", lambda snapshot, worker: False),),
    "no-brake": (
        (mass_loss_module, "is_brake_held", lambda snapshot, now_s: False),
        (membership_module, "is_brake_held", lambda snapshot, now_s: False),
    ),
    "owner-epoch-not-raised": ((handover_module, "next_epoch", _same_epoch),),
    "response-before-write": ((waiting_module, "EDIT", _ignores_outcome(waiting_module.EDIT)),),
}


@contextmanager
def mutated(name: str) -> Iterator[None]:
    """The product with that safeguard removed."""
    with ExitStack() as restoring:
        for where, attribute, mutant in MUTANTS[name]:
            restoring.callback(setattr, where, attribute, getattr(where, attribute))
            setattr(where, attribute, mutant)
        yield
