"""The product with one safeguard of exactly once removed: proof that the histories detect its absence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from ureplicator_common.errors import OperatingError
from ureplicator_common.kafka import Position
from ureplicator_common.model import Partition
from ureplicator_testkit.kafka.ledger import MemoryPositions
from ureplicator_worker.copier.lane import Progress
from ureplicator_worker.copier.lanes.raw_lane import RawLane
from ureplicator_worker.copier.lanes.raw_transactions import RawTransactions
from ureplicator_worker.copier.ownership.proof_order import OrderState, ProofOrder
from ureplicator_worker.copier.ownership.thread import Ownership
from ureplicator_worker.copier.raw import target as target_module
from ureplicator_worker.copier.raw.lane_transaction import LaneTransaction
from ureplicator_worker.copier.raw.partition import SendSide
from ureplicator_worker.copier.raw.send_window import SendWindow
from ureplicator_worker.copier.transaction_committer import TransactionCommitter

Patch = tuple[Any, str, Any]
"""Object, attribute, and its replacement."""

_ABORT = TransactionCommitter.abort
_ATTEMPT = Ownership._attempt
_BEGIN = LaneTransaction.begin
_BEGIN_NEXT = TransactionCommitter._begin
_CONFIRMED = TransactionCommitter.on_confirmed
_DUE = TransactionCommitter._due
_MAY_SEND = LaneTransaction.may_send
_PROGRESS = RawLane.progress
_RESTART = ProofOrder.restart
_RESTART_WINDOW = SendWindow.restart
_REWIND = RawTransactions.rewind


def _nothing(*arguments: Any, **named: Any) -> None:
    """Do nothing, in place of a safeguard."""


def _true(*arguments: Any, **named: Any) -> bool:
    return True


def _false(*arguments: Any, **named: Any) -> bool:
    return False


def _rewound_too_far(
    self: Any, partition: Partition, offset: int, leader_epoch: int, *, committed: bool
) -> None:
    _REWIND(self, partition, offset + 1, leader_epoch, committed=committed)


def _rewound_too_short(
    self: Any, partition: Partition, offset: int, leader_epoch: int, *, committed: bool
) -> None:
    _REWIND(self, partition, max(0, offset - 1), leader_epoch, committed=committed)


def _confirmed_as_known(self: Any, partition: Partition, stored: Position, now_s: float) -> None:
    """Go back to the last commit that was seen, not to what the store shows."""
    _CONFIRMED(self, partition, replace(stored, offset=self._delivery.offset(partition)), now_s)


def _fetched(self: Any, partitions: Iterable[Partition]) -> dict[Partition, Progress]:
    """Positions behind what was fetched, before it is acknowledged."""
    return {
        partition: progress._replace(next_offset=self._partitions[partition].fetch.offset)
        for partition, progress in _PROGRESS(self, partitions).items()
    }


def _some_due(self: Any, *arguments: Any) -> dict[Partition, Progress]:
    due: dict[Partition, Progress] = _DUE(self, *arguments)
    return dict(list(due.items())[:1])


def _by_epoch_alone(self: Any, send: SendSide) -> bool:
    """Judge as if an epoch named a producer."""
    own, window = self._producer, send.window
    if own and window.producer and own[1] == window.producer[1]:
        return not self.sealed
    return _MAY_SEND(self, send)


def _initialised_once(self: Any) -> None:
    """No new epoch after a failure: what is under way from before is accepted later."""
    _RESTART(self)
    self.initialised()


def _proven_for_ever(self: Any) -> None:
    self.state = OrderState.PROVEN


def _attempt_unseen(self: Any, request: Any, number: int = 0) -> Any:
    """A missing response to a commit is taken for a success."""
    if not number:
        return _ATTEMPT(self, request)
    with suppress(OperatingError):
        return request()
    return {}


def _left(self: Any, partition: Partition, now_s: float) -> None:
    """The rest of the transaction is committed without the partition's position."""
    del self._begun[partition]
    self._delivery.leave(partition)


def _aborted_here_alone(self: Any, *arguments: Any, **named: Any) -> None:
    ownership, self._ownership = self._ownership, _Deaf()
    _ABORT(self, *arguments, **named)
    self._ownership = ownership


class _Deaf:
    def put(self, command: Any) -> None:
        """Nothing is done."""


def _joined_at_any_time(self: Any, number: int, targets: Any, refused: Any = ()) -> None:
    """Join also by what was requested for a former transaction."""
    self._joined |= targets


def _begun_with_the_former(self: Any, producer: Any) -> None:
    """Partitions of the former transaction take part in the next one."""
    joined = set(self._joined)
    _BEGIN(self, producer)
    self._joined |= joined


def _begun_as_before(self: Any, producer: Any) -> None:
    _BEGIN_NEXT(self, self._producer or producer)


def _restarted_plain(self: Any, id: int, epoch: int, **options: Any) -> None:
    _RESTART_WINDOW(self, id, epoch, **{**options, "transactional": False})


MUTANTS_OF_BOTH: Mapping[str, Patch] = {
    "initialised-once": (ProofOrder, "restart", _initialised_once),
    "no-restart": (ProofOrder, "restart", _proven_for_ever),
    "unseen-is-committed": (Ownership, "_attempt", _attempt_unseen),
}
"""Mutants of the order of ownership, which deliveries with and without transactions go through."""

MUTANTS: Mapping[str, Patch] = {
    "no-rewind": (RawTransactions, "rewind", _nothing),
    "rewind-too-far": (RawTransactions, "rewind", _rewound_too_far),
    "rewind-too-short": (RawTransactions, "rewind", _rewound_too_short),
    "rewind-to-last-seen": (TransactionCommitter, "on_confirmed", _confirmed_as_known),
    "unsettled": (RawTransactions, "settled", True),
    "not-sealed": (RawTransactions, "seal", _nothing),
    "position-before-data": (RawLane, "progress", _fetched),
    "some-positions": (TransactionCommitter, "_due", _some_due),
    "epoch-alone": (LaneTransaction, "may_send", _by_epoch_alone),
    **MUTANTS_OF_BOTH,
    "no-fence": (MemoryPositions, "fence", _nothing),
    "fenced-goes-on": (TransactionCommitter, "on_fenced", _nothing),
    "failed-goes-on": (TransactionCommitter, "on_failed", _nothing),
    "leaves-uncommitted": (TransactionCommitter, "leave", _left),
    "aborted-here-alone": (TransactionCommitter, "abort", _aborted_here_alone),
    "abort-goes-on": (LaneTransaction, "end", _nothing),
    "not-joined": (LaneTransaction, "_takes_part", _true),
    "stale-join": (LaneTransaction, "joined", _joined_at_any_time),
    "joined-for-ever": (LaneTransaction, "begin", _begun_with_the_former),
    "former-producer": (TransactionCommitter, "_begin", _begun_as_before),
    "plain-batches": (SendWindow, "restart", _restarted_plain),
    "lost-is-retried": (target_module, "is_lost", _false),
}


@contextmanager
def mutated(name: str) -> Iterator[None]:
    """The product with that safeguard removed."""
    with patch.object(*MUTANTS[name]):
        yield
