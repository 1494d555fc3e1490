"""Filling of source offsets without a record, so that records have the same offsets at the target.

    gap of the source, up to `MARKERS_AT_MOST` --> control records of our own producer, `MARKERS` a request
    the log is to begin behind it (`begins`)   --> fillers, which are deleted at once, then control records

A control record takes an offset, and no consumer sees it. WriteTxnMarkers writes one for each entry, under
the producer of the data, whose sequences go on: so a successor that fences that producer fences late ones
of these, too. Where a leader may have forgotten it, since its last batch is old, a control record would have
its sequences begin anew, so these are NOBODY's. Without ALTER on the cluster every control record is
written by a transaction that holds no data (`WriteControlRecords`), one after the other.

A log that begins far from zero gets batches of empty records, the fillers, and the log's start is moved
behind them before the next (DeleteRecords), for the first time before there is any: it may not be allowed.
The last `RESERVE` offsets are control records: each owner that is lost meanwhile costs one, by its fence.
Before these it waits, and repeats the last request: a broker writes where its logs begin once a minute, and
one that is killed before shows the fillers again (`findings/deleted_records_after_a_kill.sh`).

A request of unknown outcome leaves the log's end in doubt: the partition begins again, and its end is read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from ureplicator_common.kafka.errors import LEADER_MOVED, ErrorCode, error_name, refusal
from ureplicator_common.kafka.producer_states import UNUSED_PRODUCER_ID
from ureplicator_common.kafka.provenance import SameOffsets
from ureplicator_worker.batches.fillers import filler
from ureplicator_worker.copier.messages import ControlRecordsWritten, WriteControlRecords
from ureplicator_worker.copier.net.buffers import Lease
from ureplicator_worker.copier.net.connection import BrokerConnection, ConnectionClosed
from ureplicator_worker.copier.net.connections import NO_VIA, Connections, Via, available
from ureplicator_worker.copier.raw.batch import Batch
from ureplicator_worker.copier.raw.confirmations import Confirmations
from ureplicator_worker.copier.raw.log_start import BrokerRun
from ureplicator_worker.copier.raw.partition import SendSide, TopicPartition, same_offsets
from ureplicator_worker.copier.raw.window_queue import MARKERS_AT_MOST
from ureplicator_worker.wire import delete_records_api, markers_api
from ureplicator_worker.wire.markers_api import Filling
from ureplicator_worker.wire.produce_api import Piece

MARKERS = 500
"""Control records of a partition in a request: brokers append them one by one."""
NOBODY = (UNUSED_PRODUCER_ID, 0)
"""Producer id and epoch."""
RESERVE = 64
FILLER_RECORDS = 100_000
"""With a deletion behind each batch a broker takes 0.06 CPU-seconds for a million fillers in batches of
100,000, 0.16 in ones of 20,000, 0.36 in ones of 5,000. And a batch of fewer bytes than BACKLOG_BYTES would be
sent on the connection of live records, which wait for it there."""
FILLED_RECORDS_S = 2_000_000
"""Fillers of a copier in a second: brokers decompress and check each of them."""
RETRY_S = 0.1
DELETE_TIMEOUT_MS = 10_000
STORED_S = 65.0
"""Time within which a broker that goes on running writes where its logs begin, by default
(`log.flush.start.offset.checkpoint.interval.ms`)."""
REPEAT_S = 1.0
"""Pause between requests for the same start of a log."""
NOT_ALLOWED_S = 60.0
"""Time for which transactions fill gaps after a refusal, before control records are requested again."""
LOST = int(ErrorCode.UNKNOWN_SERVER_ERROR)
"""For a partition that a response does not name."""
NOT_APPENDED = LEADER_MOVED | {ErrorCode.NOT_ENOUGH_REPLICAS}
"""Answers to a control record that was surely not appended, and is requested again."""
NOT_DELETED = (
    "offsets cannot be filled in a target topic that is compacted only, since nothing can be deleted there:"
    " give it cleanup.policy=compact,delete until the partition is ONLINE"
)
IN_DOUBT = "what the target has of it is in doubt, and is counted"
HOLLOW = "its producer is shared, and the source may have lost records since they were copied"


@dataclass(slots=True)
class Marked:
    """A request for control records in flight: the gaps, and how many each is to get."""

    gaps: dict[TopicPartition, tuple[SendSide, Batch, int]]


@dataclass(slots=True)
class Deleted:
    """A request in flight to a run of a broker that moves the starts of logs to these offsets."""

    run: BrokerRun
    starts: dict[TopicPartition, tuple[SendSide, int]]


Request = Marked | Deleted


class GapFiller:
    """`failed(send, reason, temporary)` for a partition that cannot be filled; `activate(send)`: it may have
    something to send again."""

    def __init__(
        self,
        connections: Connections,
        *,
        confirmations: Confirmations,
        post: Callable[[WriteControlRecords], None],
        failed: Callable[[SendSide, str, bool], None],
        activate: Callable[[SendSide], None],
        wall_s: Callable[[], float],
    ) -> None:
        self._connections = connections
        self._confirmations = confirmations
        self._post = post
        self._failed = failed
        self._activate = activate
        self._wall_s = wall_s
        self._next_filler_s = 0.0
        self._allowed_at_s = 0.0
        self._transacted: dict[TopicPartition, tuple[SendSide, Batch]] = {}
        """Gaps that get a control record by a transaction that is under way."""

    def work(self, sends: Iterable[SendSide], now_s: float, expired_ms: int) -> None:
        """Request what the gaps need that are due, and the starts of logs. Brokers may have forgotten a
        producer whose last batch is of a time before `expired_ms`."""
        marked: dict[Via, dict[TopicPartition, SendSide]] = {}
        deleted: dict[Via, dict[TopicPartition, SendSide]] = {}
        for send in sends:
            if now_s < send.retry_at_s or send.deleting:
                continue
            step = self._step(send, now_s)
            if step is not None:
                via = available(
                    self._connections, Via(self._leader(send), send.traffic(now_s)), now_s
                )
                wanted = marked if step is Marked else deleted
                wanted.setdefault(via, {})[send.topic_partition] = send
        transacted: list[SendSide] = []
        for via, group in marked.items():
            transacted += self._mark(via, group, now_s, expired_ms)
        for via, group in deleted.items():
            self._delete(via, group, now_s)
        if transacted and not self._transacted:
            self._transact(transacted, now_s)

    def _leader(self, send: SendSide) -> int:
        return self._connections.leader(*send.topic_partition).node_id

    def _step(self, send: SendSide, now_s: float) -> type[Request] | None:
        """Kind of request that the partition needs next; None: none now."""
        gap = send.window.due_gap
        missing = 0 if gap is None else send.window.missing_before(gap)
        if send.filling and missing <= RESERVE and not is_start_stored(send):
            return Deleted
        if send.filling and missing <= RESERVE:  # what follows is counted
            send.filling = False
            self._confirmations.need(send)
            return None
        if gap is None:  # the log begins where it should, but for its start
            return Deleted
        if (
            send.shared and gap.hollow
        ):  # others may have sent what was there, under the next sequences
            self._failed(send, HOLLOW, True)
            return None
        if not missing:
            send.window.filled(send.window.begin_gap(), 0)
            self._passed(send, gap)
            return None
        if send.filling:
            if send.log_start.offset < send.window.target_end:
                return Deleted
            self._fill(send, missing - RESERVE, now_s)
            return None
        if missing > MARKERS_AT_MOST:
            self._failed(send, too_many(missing, gap.first_offset), False)
            return None
        return Marked

    def _fill(self, send: SendSide, missing: int, now_s: float) -> None:
        """Put a filler before the gap, at the rate of all of them. None lies behind the stored position: the
        next owner deletes them."""
        if send.same != (same := same_offsets(send)):
            send.same = same
            self._confirmations.need(send)
            return
        if now_s < self._next_filler_s:
            return
        records = min(missing, FILLER_RECORDS)
        self._next_filler_s = max(now_s, self._next_filler_s) + records / FILLED_RECORDS_S
        time_ms = round(self._wall_s() * 1_000)
        at = send.window.position
        send.window.put_first(
            Batch(
                memoryview(filler(records, timestamp_ms=time_ms).data),
                lease=None,
                first_offset=at,
                next_offset=at,
                leader_epoch=send.window.leader_epoch,
                records=records,
                max_timestamp_ms=time_ms,
            )
        )
        self._activate(send)

    def _mark(
        self,
        via: Via,
        group: Mapping[TopicPartition, SendSide],
        now_s: float,
        expired_ms: int,
    ) -> Iterable[SendSide]:
        """Request control records. Returns the sides that may send, where they need a transaction."""
        connection = self._ready(via, group.values(), now_s)
        if connection is None:
            return ()
        sendable = self._confirmations.sendable(deque(group.values()), connection)
        if now_s < self._allowed_at_s:
            return sendable
        wanted: dict[TopicPartition, Filling] = {}
        gaps: dict[TopicPartition, tuple[SendSide, Batch, int]] = {}
        for send in sendable:
            assert send.window.producer is not None
            gap = send.window.begin_gap()
            count = min(MARKERS, send.window.missing_before(gap))
            forgotten = send.window.may_be_forgotten(expired_ms)
            producer = NOBODY if forgotten else send.window.producer
            wanted[send.topic_partition] = Filling(*producer, count)
            gaps[send.topic_partition] = send, gap, count
            send.sent_via, send.sent_at_s = via, now_s
        if wanted:
            request = partial(markers_api.request, wanted, coordinator_epoch=0)
            self._send(via, connection, request, Marked(gaps), now_s)
        return ()

    def _transact(self, sends: Iterable[SendSide], now_s: float) -> None:
        for send in sends:
            self._transacted[send.topic_partition] = send, send.window.begin_gap()
            send.sent_via, send.sent_at_s = NO_VIA, now_s
        self._post(WriteControlRecords(tuple(self._transacted)))

    def written(self, written: ControlRecordsWritten, now_s: float) -> None:
        """See `lane.Transactions`."""
        transacted, self._transacted = self._transacted, {}
        for key, (send, gap) in transacted.items():
            if not send.window.is_in_flight(gap):
                continue
            if key in written.written:
                self._marked(send, gap, 1, ErrorCode.NONE, now_s)
            elif key in written.doubt:
                self._failed(send, f"{IN_DOUBT}: {written.doubt[key]}", True)
            else:
                send.window.lost(gap)
                send.retry_at_s = now_s + RETRY_S
                self._activate(send)
            if key in written.refused:
                reason = written.refused[key]
                self._failed(send, f"offsets without a record cannot be filled: {reason}", True)

    def _delete(self, via: Via, group: Mapping[TopicPartition, SendSide], now_s: float) -> None:
        connection = self._ready(via, group.values(), now_s)
        if connection is None:
            return
        starts = {key: (send, start_of(send)) for key, send in group.items()}
        for send, _ in starts.values():
            send.deleting = True
        offsets = {key: start for key, (_, start) in starts.items()}
        request = partial(delete_records_api.request, offsets, timeout_ms=DELETE_TIMEOUT_MS)
        run = via.node_id, self._connections.lost[via.node_id]
        self._send(via, connection, request, Deleted(run, starts), now_s)

    def _ready(self, via: Via, sends: Iterable[SendSide], now_s: float) -> BrokerConnection | None:
        """A connection that takes a request; without one they try again later."""
        connection = self._connections.connection_to(via, now_s) if via.node_id >= 0 else None
        if connection is not None and not connection.wants_write:
            return connection
        if via.node_id < 0:
            self._connections.refresh()
        for send in sends:
            send.retry_at_s = now_s + RETRY_S if via.node_id < 0 else now_s
        return None

    def _send(
        self,
        via: Via,
        connection: BrokerConnection,
        request: Callable[..., list[Piece]],
        context: Request,
        now_s: float,
    ) -> None:
        correlation_id = connection.next_correlation_id()
        pieces = request(correlation_id=correlation_id, client_id=self._connections.client_id)
        try:
            connection.send(pieces, correlation_id=correlation_id, context=context, now_s=now_s)
        except ConnectionClosed as error:
            self._connections.drop(via, str(error), now_s=now_s)

    def on_response(self, request: Request, lease: Lease, now_s: float) -> None:
        try:
            if isinstance(request, Marked):
                codes = markers_api.parse(lease.view)
            else:
                answers = delete_records_api.parse(lease.view)
                codes = {key: [code] for key, (code, _) in answers.items()}
        finally:
            lease.release()
        if isinstance(request, Marked):
            for key, (send, gap, count) in request.gaps.items():
                if send.window.is_in_flight(gap):
                    self._marked(send, gap, count, max(codes.get(key, [LOST])), now_s)
        else:
            for key, (send, start) in request.starts.items():
                if send.deleting:
                    code = max(codes.get(key, [LOST]))
                    self._started(send, start, code, now_s, run=request.run)

    def _marked(self, send: SendSide, gap: Batch, count: int, code: int, now_s: float) -> None:
        """The answer is that to the last of them: of several it leaves those before it open."""
        if code == ErrorCode.NONE:
            send.error = ""
            send.moved_at_s = now_s
            send.window.filled(gap, count)
            if send.window.head is not gap:
                self._passed(send, gap)
        elif code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            send.window.lost(gap)
            self._allowed_at_s = now_s + NOT_ALLOWED_S
        elif count == 1 and code in NOT_APPENDED:
            send.window.lost(gap)
            self._retry(send, code, now_s)
        else:
            if code in LEADER_MOVED:
                self._connections.refresh()
            self._failed(send, f"{IN_DOUBT}: {error_name(code)}", True)
        self._activate(send)

    def _started(
        self, send: SendSide, start: int, code: int, now_s: float, *, run: BrokerRun
    ) -> None:
        send.deleting = False
        if code == ErrorCode.NONE:
            send.window.sure_end = max(send.window.sure_end, start)
            send.begins = send.window.due_gap is not None
            self._see_stored(send, start, now_s, run=run)
        elif code == ErrorCode.POLICY_VIOLATION and not send.filling:
            send.begins = False  # a log that is compacted only begins with control records
        elif code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            right = f"DELETE on topic {send.topic_partition[0]}"
            reason = refusal(code, right, self._connections.cluster)
            self._failed(send, f"fillers cannot be deleted: {reason}", True)
        elif code == ErrorCode.OFFSET_OUT_OF_RANGE:  # fewer control records than were requested
            self._failed(send, IN_DOUBT, True)
        elif code == ErrorCode.POLICY_VIOLATION:
            self._failed(send, NOT_DELETED, False)
        else:
            self._retry(send, code, now_s)
        self._activate(send)

    def _see_stored(self, send: SendSide, start: int, now_s: float, *, run: BrokerRun) -> None:
        """Note that the run of a broker has the start in its memory, and ask again until it is on disk."""
        send.log_start.moved(start, run, now_s, stored_s=STORED_S)
        gap = send.window.due_gap
        is_due = gap is not None and send.window.missing_before(gap) <= RESERVE
        if is_due and not send.log_start.is_stored:
            send.retry_at_s = now_s + REPEAT_S

    def _retry(self, send: SendSide, code: int, now_s: float) -> None:
        send.error = error_name(code)
        send.retry_at_s = now_s + RETRY_S
        if code in LEADER_MOVED:
            self._connections.refresh()

    def _passed(self, send: SendSide, gap: Batch) -> None:
        """The gap is filled. What is counted behind a position follows no record that was left out."""
        if gap.lossy:
            self._confirmations.need(send)
        self._activate(send)

    def on_lost(self, request: Request) -> None:
        """The response will never come."""
        if isinstance(request, Deleted):
            for send, _ in request.starts.values():
                if send.deleting:
                    send.deleting = False
                    self._activate(send)
            return
        for send, gap, _ in request.gaps.values():
            if send.window.is_in_flight(gap):
                self._failed(send, IN_DOUBT, True)


def start_of(send: SendSide) -> int:
    """Offset before which the target's log holds fillers, and nothing that was copied."""
    return min(send.window.target_end, send.window.position)


def is_start_stored(send: SendSide) -> bool:
    """True if no broker can show a filler again after a kill."""
    return send.log_start.is_stored or send.window.position <= RESERVE


def at_gap(send: SendSide) -> bool:
    """Offsets are to be filled, or the log's start to be moved, before anything else is sent."""
    window, head = send.window, send.window.head
    if window.in_flight or (head is not None and head.is_filler and not head.is_gap):
        return False
    return send.begins or (head is not None and head.is_gap)


def becomes_old(send: SendSide, expired_ms: int) -> bool:
    """True if the next batch is old, and the position does not say so yet. That is stored first, so that
    whoever was replaced sends none of it: brokers would forget the producer that a successor shares."""
    head = send.window.head
    if send.old or send.shared or head is None:
        return False
    return head.max_timestamp_ms < expired_ms


def shifted(send: SendSide, batch: Batch, target: int) -> SameOffsets:
    """State of equal offsets with a batch that lies at this offset of the target."""
    assert send.same is not None
    shift = target - batch.first_offset
    if batch.is_filler or shift == send.same.shift:
        return send.same
    return SameOffsets(batch.first_offset, shift, send.shift_reason if shift else "")


def filling_text(send: SendSide) -> str:
    """Offsets that are filled before the first record, and the time that the rest takes at least."""
    done, whole = send.window.target_end, send.window.position
    if RESERVE < whole <= done + RESERVE:
        return f"filling offsets: {done:,} of {whole:,}, brokers store that within {STORED_S:.0f} s"
    left_s = (whole - done) / FILLED_RECORDS_S + STORED_S
    return f"filling offsets: {done:,} of {whole:,}, {left_s:,.0f} s left at least"


def too_many(missing: int, offset: int) -> str:
    return (
        f"{missing:,} offsets without a record from {offset:,} on are more than can be filled"
        f" ({MARKERS_AT_MOST:,}): copy the topic with mapped offsets"
    )
