"""The product with one safeguard of the same offsets removed: see `mutants`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from ureplicator_common.kafka.errors import ErrorCode
from ureplicator_testkit.exactly_once.fenced_mutants import Patch, _true, _unawaited
from ureplicator_worker.batches.header import next_sequence
from ureplicator_worker.copier import same_start
from ureplicator_worker.copier.behind import Behind
from ureplicator_worker.copier.lanes import raw_lane
from ureplicator_worker.copier.lanes.raw_lane import RawLane
from ureplicator_worker.copier.messages import ControlRecordsWritten
from ureplicator_worker.copier.raw import gap_filling, ingest, target
from ureplicator_worker.copier.raw.gap_filling import GapFiller, Marked
from ureplicator_worker.copier.raw.partition import same_offsets
from ureplicator_worker.copier.raw.send_window import SendWindow
from ureplicator_worker.copier.raw.target import Target
from ureplicator_worker.copier.takeover import takeovers
from ureplicator_worker.copier.takeover.shared_tail import SharedTail
from ureplicator_worker.wire.markers_api import Filling

_CAN_SEND = SendWindow.can_send
_CLOSED = raw_lane.is_closed
_SHARE = SharedTail._share
_DROP = Target.drop
_FILL = GapFiller._fill
_LOST = GapFiller.on_lost
_MARKED = GapFiller._marked
_MISSING = SendWindow.missing_before
_PROGRESS = RawLane.progress
_NEXT = takeovers.next_shared
_REFUSED = Target._refused
_START = gap_filling.start_of
_STARTED = GapFiller._started
_STEP = GapFiller._step
_WRITTEN = GapFiller.written


def _missing(more: int) -> Any:
    def missing(self: Any, gap: Any) -> int:
        return max(0, _MISSING(self, gap) + more)

    return missing


def _too_short(producer_id: int, epoch: int, count: int) -> Filling:
    return Filling(producer_id, epoch, count - 1)


def _again(self: Any, request: Any) -> None:
    """Request control records of unknown outcome once more."""
    if not isinstance(request, Marked):
        _LOST(self, request)
        return
    for send, gap, _ in request.gaps.values():
        if send.window.is_in_flight(gap):
            send.window.lost(gap)
            self._activate(send)


def _always_done(self: Any, send: Any, gap: Any, count: int, code: int, now_s: float) -> None:
    _MARKED(self, send, gap, count, ErrorCode.NONE, now_s)


def _written_anyhow(self: Any, written: ControlRecordsWritten, now_s: float) -> None:
    done = written.written | written.doubt.keys()
    _WRITTEN(self, ControlRecordsWritten(done), now_s)


def _never(send: Any, expired_ms: int) -> bool:
    return False


def _anywhere(self: Any, send: Any, now_s: float) -> Any:
    """Put fillers into any gap."""
    gap = send.window.due_gap
    if gap is not None and not send.begins and send.window.missing_before(gap) > 1:
        self._fill(send, send.window.missing_before(gap) - 1, now_s)
        return None
    return _STEP(self, send, now_s)


def _fill_at_once(self: Any, send: Any, missing: int, now_s: float) -> None:
    """Put fillers behind the stored position."""
    send.same = same_offsets(send)
    _FILL(self, send, missing, now_s)


def _still_filling(self: Any, send: Any, now_s: float) -> Any:
    """Leave a log that is full as it is."""
    gap = send.window.due_gap
    if gap is None or send.window.missing_before(gap):
        return gap_filling.Deleted if gap is None else _STEP(self, send, now_s)
    send.window.filled(send.window.begin_gap(), 0)
    self._passed(send, gap)
    return None


def _not_shared(original: Any) -> Any:
    """Take the producer for one's own."""

    def call(self: Any, send: Any, *arguments: Any) -> Any:
        with patch.object(send, "shared", new=False):
            return original(self, send, *arguments)

    return call


def _with_fillers(self: Any, partitions: Any) -> Any:
    """Count fillers as records of the source."""
    return {
        part: progress._replace(sequence=self._partitions[part].window.acknowledged_sequence)
        for part, progress in _PROGRESS(self, partitions).items()
    }


def _unchanged(send: Any, batch: Any, base: int) -> Any:
    return send.same


def _closed_though_shared(raw: Any) -> bool:
    with patch.object(raw.send, "shared", new=False):
        return _CLOSED(raw)


def _unknown_too(sent: Any, states: Any, *, oldest_ms: int) -> int:
    """Take a producer that the leader does not know for one that has sent nothing since."""
    found = _NEXT(sent, states, oldest_ms=oldest_ms)
    is_unknown = found < 0 and sent is not None and isinstance(states, Mapping)
    return int(sent.sequence) if is_unknown and sent.id not in states else found


def _of_any_age(sent: Any, states: Any, *, oldest_ms: int) -> int:
    return _NEXT(sent, states, oldest_ms=0)


def _always_known(sent: Any, states: Any) -> bool:
    return True


def _uncounted(self: Any) -> None:
    """Use the producer on, and go on at the position."""
    shared = self._sent._replace(sequence=self._next)
    self.behind = Behind(0, max(self._end, self.offset), shared=shared)


def _one_further(self: Any) -> None:
    _SHARE(self)
    if self.behind is not None and self.behind.shared is not None:
        sequence = next_sequence(self.behind.shared.sequence, 1)
        shared = self.behind.shared._replace(sequence=sequence)
        self.behind = replace(self.behind, shared=shared)


def _beside_a_gap(self: Any, expired_ms: int = 0) -> bool:
    last = self._in_flight[-1] if self._in_flight else None
    if last is None or not last.is_gap or not self._queue or self._queue[0].is_gap:
        return _CAN_SEND(self, expired_ms)
    return True


def _due_beside_data(self: Any) -> Any:
    head = self.head
    return head if head is not None and head.is_gap else None


def _one_start_further(send: Any) -> int:
    return _START(send) + 1


def _passed_at_once(self: Any, send: Any, gap: Any) -> None:
    self._activate(send)


def _unsplit(window: Any, built: Any, next_offset: int, leader_epoch: int, source: Any) -> None:
    window.push(ingest.batch_of(built, next_offset, leader_epoch, source))


def _left_deleting(self: Any, send: Any) -> None:
    deleting = send.deleting
    _DROP(self, send)
    send.deleting = deleting


def _begun_anyhow(self: Any, send: Any, start: int, code: int, now_s: float, **place: Any) -> None:
    """Go on before the fillers are deleted."""
    _STARTED(self, send, start, ErrorCode.NONE, now_s, **place)


SAME_MUTANTS: Mapping[str, Patch] = {
    "begun-one-early": (SendWindow, "missing_before", _missing(-1)),
    "begun-one-late": (SendWindow, "missing_before", _missing(1)),
    "filled-twice": (GapFiller, "on_lost", _again),
    "filled-short": (gap_filling, "Filling", _too_short),
    "doubt-taken-for-done": (GapFiller, "_marked", _always_done),
    "transaction-taken-for-done": (GapFiller, "written", _written_anyhow),
    "filler-after-records": (GapFiller, "_step", _anywhere),
    "fillers-behind-position": (GapFiller, "_fill", _fill_at_once),
    "fillers-counted": (RawLane, "progress", _with_fillers),
    "full-log-uncounted": (GapFiller, "_step", _still_filling),
    "begun-before-stored": (GapFiller, "_step", _unawaited(_STEP)),
    "start-not-stored": (gap_filling, "is_start_stored", _true),
    "fillers-left": (GapFiller, "_started", _begun_anyhow),
    "deleted-further": (gap_filling, "start_of", _one_start_further),
    "deleted-for-nobody": (Target, "drop", _left_deleting),
    "equal-over-a-shift": (target, "shifted", _unchanged),
    "equal-over-a-takeover": (same_start, "_has_shift", _true),
    "shared-is-closed": (raw_lane, "is_closed", _closed_though_shared),
    "unknown-is-shared": (takeovers, "next_shared", _unknown_too),
    "never-forgotten": (takeovers, "is_known", _always_known),
    "old-is-shared": (takeovers, "next_shared", _of_any_age),
    "old-not-stored": (target, "becomes_old", _never),
    "shared-uncounted": (SharedTail, "_conclude", _uncounted),
    "shared-one-further": (SharedTail, "_share", _one_further),
    "skipped-beside-another": (Target, "_refused", _not_shared(_REFUSED)),
    "hole-beside-another": (GapFiller, "_step", _not_shared(_STEP)),
    "sent-beside-a-gap": (SendWindow, "can_send", _beside_a_gap),
    "filled-beside-data": (SendWindow, "due_gap", property(_due_beside_data)),
    "holes-sent": (ingest, "push_built", _unsplit),
    "skip-not-stored": (GapFiller, "_passed", _passed_at_once),
}


@contextmanager
def same_mutated(name: str) -> Iterator[None]:
    """The product with that safeguard removed."""
    with patch.object(*SAME_MUTANTS[name]):
        yield
