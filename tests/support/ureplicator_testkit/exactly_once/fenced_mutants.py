"""The product with one safeguard of exactly once without transactions removed: see `mutants`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from ureplicator_common.kafka.transactions.producers import Producer
from ureplicator_testkit.exactly_once.mutants import MUTANTS_OF_BOTH
from ureplicator_testkit.kafka.ledger import MemoryPositions
from ureplicator_worker.batches.committed import committed_batches
from ureplicator_worker.batches.header import CONTROL, Header, Kind, spans
from ureplicator_worker.copier import committer, start_position
from ureplicator_worker.copier.at_least_once import CommittedPosition
from ureplicator_worker.copier.behind import Behind, Place, Span
from ureplicator_worker.copier.committer import Committer
from ureplicator_worker.copier.lanes import raw_lane
from ureplicator_worker.copier.lanes.raw_lane import RawLane
from ureplicator_worker.copier.messages import Begun
from ureplicator_worker.copier.ownership import position_records, thread
from ureplicator_worker.copier.ownership.data_producers import DataProducers
from ureplicator_worker.copier.position_values import Commitment, Counted
from ureplicator_worker.copier.raw import send_window, target
from ureplicator_worker.copier.raw.confirmations import Confirmations
from ureplicator_worker.copier.raw.send_window import SendWindow
from ureplicator_worker.copier.raw.target import Target
from ureplicator_worker.copier.takeover import source_place, takeovers, target_tail
from ureplicator_worker.copier.takeover.source_place import SourcePlace
from ureplicator_worker.copier.takeover.takeovers import Takeovers
from ureplicator_worker.copier.takeover.target_tail import TargetTail
from ureplicator_worker.copier.takeover.witness import Placed

Patch = tuple[Any, str, Any]

_ADD = TargetTail.add
_AT_TARGET = Takeovers.at_target
_BATCHES = committed_batches
_CAN_SEND = SendWindow.can_send
_ASSIGN = DataProducers.assign
_COUNTED = TargetTail._counted
_FIND = SourcePlace._count
_FIRST = position_records.first_commitment
_IN_DOUBT = Target._is_in_doubt
_NEED = Target.need_producer
_PROGRESS = RawLane.progress
_REFUSED = Target._refused
_SEEK = RawLane.seek
_TAIL = TargetTail.__init__


def _nothing(*arguments: Any, **named: Any) -> None:
    """Do nothing, in place of a safeguard."""


def _none(*arguments: Any, **named: Any) -> dict[Any, Any]:
    return {}


def _false(*arguments: Any, **named: Any) -> bool:
    return False


def _true(*arguments: Any, **named: Any) -> bool:
    return True


def _counted(shift: int) -> Any:
    def counted(self: Any, end: int) -> Behind:
        found: Behind = _COUNTED(self, end)
        return replace(found, count=max(0, found.count + shift), last=None)

    return counted


def _unseen(self: Any, rows: Any, leader_epoch: int) -> None:
    """Believe the count whatever the record is."""
    self._behind = replace(self._behind, last=None)
    for offset, witness in rows:
        self._behind = replace(self._behind, last=witness)
        _FIND(self, [Placed(offset, witness)], leader_epoch)
        if self.done:
            return


def _not_awaited(self: Any, records: bytes, row: Any = None) -> None:
    """Conclude at the end of the log, also before the control record."""
    _ADD(self, records, row)
    if self.behind is None:
        self._conclude()


def _by_data(self: Any, records: bytes, row: Any = None) -> None:
    """Count the records behind the position, of whomever they are."""
    count, end = 0, self.offset
    for start, _ in spans(records, 0, len(records)):
        header = Header(records, start)
        end = header.last_offset + 1
        if header.last_offset >= self._target_end and not header.attributes & CONTROL:
            count += header.records
    self.behind = Behind(count, end)


def _same_producer(self: Any, partitions: Any, now_s: float) -> Any:
    self._served.clear()
    return _ASSIGN(self, partitions, now_s)


def _restarted(self: Any, send: Any) -> None:
    """Send again under a fresh id, as at least once."""
    send.needs_producer = not self._producers.restart(send.topic_partition, send.window)


def _unsequenced(self: Any, partitions: Any) -> Any:
    return {
        part: progress._replace(sequence=0)
        for part, progress in _PROGRESS(self, partitions).items()
    }


def _sent_counts(self: Any, partitions: Any) -> Any:
    """The sequence behind what was sent, not what was acknowledged."""
    return {
        part: progress._replace(sequence=self._partitions[part].window.next_sequence)
        for part, progress in _PROGRESS(self, partitions).items()
    }


def _always_closed(beginning: Any, progress: Any) -> None:
    return None


def _is_moved(begun: Any) -> bool:
    return bool(begun.beginning.committed != begun.beginning.position)


def _confirmed_at_once(self: Any, partition: Any) -> None:
    self._lane.confirmed(partition)


class _Unfenced:
    """A store that writes no control record."""

    def fence_data(self, name: str, partitions: Any) -> tuple[Producer, dict[Any, str]]:
        return Producer(-5, 0), {}


def _counted_unfenced(self: Any, *arguments: Any, **named: Any) -> Any:
    store, self._store = self._store, _Unfenced()
    with patch.object(TargetTail, "add", _not_awaited):
        found = _AT_TARGET(self, *arguments, **named)
    self._store = store
    return found


def _fenced_after(self: Any, stored: Any, view: Any, ends: Any, **named: Any) -> Any:
    """Count up to the present end of the log, and fence then."""
    found = _counted_unfenced(self, stored, view, ends, **named)
    for name, positions in takeovers._by_producer(stored, view).items():
        self._store.fence_data(name, positions)
    return found


def _by_epoch(self: Any, send: Any, connection: Any) -> bool:
    """Send over any connection of a leader that is known."""
    return bool(self._connections.leader(*send.topic_partition).epoch <= send.confirmed[1])


def _by_connection(self: Any, send: Any, connection: Any) -> bool:
    """Send to any leader over a connection that is known."""
    return bool(connection.serial <= send.confirmed[0])


def _taken_for(kind: Kind) -> Any:
    """Batches of this kind are counted at the source, too."""

    def found(*arguments: Any, **named: Any) -> Iterator[Any]:
        for view, header, what in _BATCHES(*arguments, **named):
            has_records = header.records > 0
            yield view, header, Kind.PASS if what is kind and has_records else what

    return found


def _by_records_left(self: Any, end: int) -> Behind:
    """Count what compaction has left of the last batch."""
    header = Header(self._last, 0)
    removed = header.last_offset - header.base_offset + 1 - header.records
    found: Behind = _COUNTED(self, end)
    return replace(found, count=max(0, found.count - removed))


def _unawaited(original: Any) -> Any:
    """Send on before the position is stored."""

    def call(*arguments: Any, **named: Any) -> Any:
        with patch.object(Confirmations, "need", _nothing):
            return original(*arguments, **named)

    return call


def _stored_if_alike(self: Any, progress: Any) -> bool:
    return bool(progress.next_offset == self.offset)


def _of_any_age(self: Any, expired_ms: int = 0) -> bool:
    return _CAN_SEND(self)


def _repeats_alone(self: Any, send: Any) -> bool:
    """A try that may arrive late counts for nothing."""
    with patch.object(send.window, "astray", new=False):
        return bool(_IN_DOUBT(self, send))


def _not_sought(self: Any) -> None:
    """Take what is not among the last offsets for missing."""
    self.behind = self._counted(self.offset) if self._last else Behind(0, self.offset)


def _at_position(self: Any, copies: Any) -> int:
    return int(self._position)


def _unordered(copies: Any, rows: Any) -> int | None:
    known = [row.offset + 1 for row in rows if row.witness in copies]
    return known[-1] if known else None


def _ends_at_any(self: Any, *, fence: Any, **named: Any) -> None:
    _TAIL(self, fence=replace(fence, epoch=-1), **named)


def _no_longer(self: Any, now_s: float) -> list[Any]:
    return []


def _asked_in_vain(self: Any, now_s: float) -> list[Any]:
    """Ask for the ids, whatever comes."""
    for name in set(self._names.values()):
        self._store.data_producer(name)
    return []


def _unplaced(decision: Any, place: Any) -> Any:
    return decision.beginning


def _any_counted(decision: Any, place: Place) -> Counted:
    """Map what was counted as if neither log had holes."""
    behind, position = decision.behind, decision.beginning.position
    return Counted(position, max(0, behind.first), (Span(position, behind.count),))


def _without_rows(begun: Begun) -> Commitment:
    return replace(_FIRST(begun), segments=())


FENCED_MUTANTS: Mapping[str, Patch] = {
    "not-counted": (Takeovers, "at_target", _none),
    "counted-one-more": (TargetTail, "_counted", _counted(1)),
    "counted-one-less": (TargetTail, "_counted", _counted(-1)),
    "all-data-counted": (TargetTail, "add", _by_data),
    "records-left-counted": (TargetTail, "_counted", _by_records_left),
    "count-ignored": (start_position, "_placed", _unplaced),
    "not-sought": (TargetTail, "_conclude", _not_sought),
    "no-wrap": (target_tail, "SEQUENCE_MODULUS", 1 << 40),
    "moved-by-hand-counted": (target_tail, "UNCOUNTED", -99),
    "marker-not-awaited": (TargetTail, "add", _not_awaited),
    "any-marker-ends": (TargetTail, "__init__", _ends_at_any),
    "loss-hidden": (TargetTail, "_check_place", _nothing),
    "not-fenced": (Takeovers, "at_target", _counted_unfenced),
    "fenced-after": (Takeovers, "at_target", _fenced_after),
    "witness-not-compared": (SourcePlace, "_count", _unseen),
    "aborted-counted": (source_place, "committed_batches", _taken_for(Kind.DROP)),
    "control-counted": (source_place, "committed_batches", _taken_for(Kind.CONTROL)),
    "never-collected": (Takeovers, "collect", _nothing),
    "nothing-left-nothing-copied": (SourcePlace, "_before_all", _at_position),
    "matched-in-any-order": (source_place, "matching", _unordered),
    "holes-mapped": (start_position, "counted_records", _any_counted),
    "first-rows-left-out": (thread, "first_commitment", _without_rows),
    "count-not-mapped": (start_position, "counted_records", _nothing),
    "same-producer": (DataProducers, "assign", _same_producer),
    "not-renewed": (DataProducers, "renew", _no_longer),
    "renewed-in-vain": (DataProducers, "renew", _asked_in_vain),
    "sent-again-under-fresh-id": (Target, "need_producer", _restarted),
    "old-is-sent-again": (Target, "_is_in_doubt", _false),
    "late-try-ignored": (Target, "_is_in_doubt", _repeats_alone),
    "old-in-flight": (SendWindow, "can_send", _of_any_age),
    "new-in-flight": (send_window, "MAX_IN_FLIGHT_NEW_PRODUCER", 5),
    "no-doubt": (target, "MAX_IN_FLIGHT_NEW_PRODUCER", 5),
    "went-back-unseen": (Target, "went_back", _nothing),
    "gap-not-awaited": (RawLane, "seek", _unawaited(_SEEK)),
    "skip-not-awaited": (Target, "_refused", _unawaited(_REFUSED)),
    "unsequenced": (RawLane, "progress", _unsequenced),
    "sent-counts": (RawLane, "progress", _sent_counts),
    "always-closed": (committer, "appends_after", _always_closed),
    "closed-in-doubt": (SendWindow, "uncertain", False),
    "closed-before-the-end": (raw_lane, "is_closed", _true),
    "left-open": (CommittedPosition, "is_stored", _stored_if_alike),
    "producer-not-stored": (thread, "is_first", _is_moved),
    "no-slot-fence": (MemoryPositions, "fence", _nothing),
    **MUTANTS_OF_BOTH,
    "confirmed-at-once": (Committer, "confirm", _confirmed_at_once),
    "not-confirmed": (Confirmations, "_is_confirmed", _true),
    "old-connection": (Confirmations, "_is_confirmed", _by_epoch),
    "new-leader": (Confirmations, "_is_confirmed", _by_connection),
}


@contextmanager
def fenced_mutated(name: str) -> Iterator[None]:
    """The product with that safeguard removed."""
    with patch.object(*FENCED_MUTANTS[name]):
        yield
