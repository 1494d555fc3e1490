"""Brokers in memory that can fail: they speak Fetch 12, 13, 16 and Produce 9, 10, 13 over socket pairs,
WriteTxnMarkers and DeleteRecords (`log_requests`).

They run only when `pump` is called, in the thread of the test, so the test decides the order of
events. Fetches are read_committed: up to the last stable offset, with the aborted
transactions of the range that a response holds, as a broker finds them in its index. Responses to produces
name the partitions in another order than the request: brokers promise none.
"""

from __future__ import annotations

import socket
import struct
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kafka.protocol.admin import DeleteRecordsRequest
from kafka.protocol.consumer import FetchRequest, FetchResponse
from kafka.protocol.producer import ProduceRequest, ProduceResponse, WriteTxnMarkersRequest

from ureplicator_common.kafka.client import READ_COMMITTED
from ureplicator_common.kafka.errors import ErrorCode
from ureplicator_testkit.kafka.batch_log import BatchLog
from ureplicator_testkit.kafka.cluster import ClusterModel, TopicPartition
from ureplicator_testkit.kafka.log_requests import delete_records, write_markers
from ureplicator_worker.wire import delete_records_api, fetch_api, markers_api, produce_api

TURN_MS = 30
READ_BYTES = 1 << 16
"""Less than what the allocator maps and unmaps for each call."""

Script = dict[TopicPartition, deque[int]]
CheckTransaction = Callable[[TopicPartition, bytes, int], int]
APPENDING = (produce_api.API_KEY, markers_api.API_KEY)


@dataclass(frozen=True)
class SessionEntry:
    """One partition of a fetch session, and how its topic was named."""

    topic_id: Any
    row: Any


@dataclass(frozen=True)
class Read:
    """Findings of a fetch in one partition. `diverging`: see `BatchLog.diverging`."""

    log: BatchLog
    error: int
    diverging: tuple[int, int] | None
    high_watermark: int
    batches: list[bytes]

    def is_change(self) -> bool:
        """True if a session's response has to hold the partition."""
        return bool(self.batches or self.error or self.diverging)


@dataclass
class Peer:
    """The broker's end of one connection."""

    node_id: int
    connection: socket.socket
    incoming: bytearray = field(default_factory=bytearray)
    outgoing: bytearray = field(default_factory=bytearray)
    held: deque[bytes] = field(default_factory=deque)
    closed: bool = False
    busy_turns: int = 0


class MemoryKafka(ClusterModel[BatchLog]):
    """Knobs: `max_connections` (that a node admits), `refuse` (error codes of the next produces or fetches of
    a partition), `refuse_markers`, `refuse_deletions` (of its next control records on request, and of its
    next DeleteRecords), `messages` (beside errors of its produces), `belated` (error
    codes of the next produces, which the log takes none the less), `silent` (nodes
    that read and never respond), `frozen` (nodes that do not even read), `down` (nodes that no
    connection reaches), `cut_after` (bytes that a node still sends before it breaks the
    connection), `pace` (most bytes that a node reads and sends a turn), `throttle_ms` (in responses
    to produces), `garbled` (how many responses of a node are none), `omit` (partitions left out of
    responses to produces), `hung` (partitions whose followers are slow: a request with one takes its
    time limit, in turns of 0.03 s), `newest` (the versions it reports), `late_appends` (batches that are
    appended while the next fetches of a partition are performed: after the high watermark of the response is
    set, and before the log is read), `sessionless` (no room for fetch sessions is left), `remote_ms` (time
    that a read of a partition takes, as from tiered storage: a fetch that waits less is answered without a
    batch), `empty_fetches` (how many next fetches of a partition are answered so, however long they wait),
    `throttled_fetches` (throttle times of the next responses to fetches, which have no partitions),
    `delaying` (nodes whose next produce, or request of control records, is under way when its connection
    breaks: it arrives with `arrive`)."""

    def __init__(self, cluster_id: str, topics: Mapping[str, int], *, nodes: int = 1) -> None:
        super().__init__(cluster_id, topics, log=BatchLog, nodes=nodes)
        self.newest = {
            fetch_api.API_KEY: fetch_api.LEADERS,
            produce_api.API_KEY: produce_api.IDS,
            markers_api.API_KEY: markers_api.VERSION,
            delete_records_api.API_KEY: delete_records_api.VERSION,
        }
        self.max_connections = 1_000
        self.refuse: Script = {}
        self.refuse_markers: Script = {}
        self.refuse_deletions: Script = {}
        self.messages: dict[TopicPartition, str] = {}
        self.belated: dict[TopicPartition, deque[int]] = {}
        self.silent: set[int] = set()
        self.one_at_a_time = False
        self.frozen: set[int] = set()
        self.cut_after: dict[int, int] = {}
        self.pace: dict[int, int] = {}
        self.throttle_ms = 0
        self.garbled: dict[int, int] = {}
        self.hung: set[TopicPartition] = set()
        self.delaying: set[int] = set()
        self.session_ids = 0
        self.sessionless = False
        self.sessions: dict[int, dict[TopicPartition, SessionEntry]] = {}
        self.remote_ms: dict[TopicPartition, int] = {}
        self.empty_fetches: dict[TopicPartition, int] = {}
        self.throttled_fetches: deque[int] = deque()
        self.fetch_error = 0
        self.omit: set[TopicPartition] = set()
        self.late_appends: dict[TopicPartition, deque[bytes]] = {}
        self.requests: list[Any] = []
        self.check_transaction: CheckTransaction = lambda key, batch, version: ErrorCode.NONE
        """Error code of the coordinator for a batch, and the version of its request."""
        self._peers: list[Peer] = []
        self._delayed: deque[tuple[Peer, bytes]] = deque()

    def is_full(self, node_id: int) -> bool:
        """True if it admits no more connections."""
        return sum(peer.node_id == node_id for peer in self._peers) >= self.max_connections

    def connect(self, node_id: int) -> socket.socket:
        """The client's end of a new connection."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        self._peers.append(Peer(node_id, ours))
        return theirs

    def cut(self, node_id: int) -> None:
        """Break every connection to a node."""
        for peer in self._peers:
            if peer.node_id == node_id:
                self._close(peer)

    def close(self) -> None:
        for peer in self._peers:
            self._close(peer)

    def pump(self) -> None:
        """Read, perform and respond to all that has arrived."""
        for peer in self._peers:
            if not peer.closed and peer.node_id not in self.frozen:
                self._pump(peer)
        self._peers = [peer for peer in self._peers if not peer.closed]

    def _pump(self, peer: Peer) -> None:
        if peer.node_id in self.down:
            self._close(peer)
            return
        pace = self.pace.get(peer.node_id)
        try:
            while data := peer.connection.recv(READ_BYTES if pace is None else pace):
                peer.incoming += data
                if pace is not None:
                    break
            else:
                self._close(peer)
                return
        except BlockingIOError:
            pass
        except OSError:
            self._close(peer)
            return
        self._take_requests(peer)
        if not peer.closed:
            self._send(peer)

    def _take_requests(self, peer: Peer) -> None:
        """Take whole requests: all there are, or one a call (`one_at_a_time`)."""
        peer.busy_turns = max(0, peer.busy_turns - 1)
        while len(peer.incoming) >= 4 and not peer.busy_turns:
            (size,) = struct.unpack_from(">i", peer.incoming)
            if len(peer.incoming) < 4 + size:
                return
            with memoryview(peer.incoming) as incoming:
                request = bytes(incoming[4 : 4 + size])
            del peer.incoming[: 4 + size]
            if peer.node_id in self.delaying and api_key(request) in APPENDING:
                self.delaying.remove(peer.node_id)
                self._delayed.append((peer, request))
                self._close(peer)
                return
            response = self._respond(peer, request)
            if self.garbled.get(peer.node_id):
                self.garbled[peer.node_id] -= 1
                response = response[:8] + b"\xff" * (len(response) - 8)
            if peer.node_id not in self.silent:
                peer.outgoing += response
            if self.one_at_a_time:
                return

    def arrive(self) -> None:
        """The delayed requests, whatever has happened since. No client gets a response."""
        while self._delayed:
            self._respond(*self._delayed.popleft())

    def lose_delayed(self) -> None:
        self._delayed.clear()

    def _send(self, peer: Peer) -> None:
        allowed = self.cut_after.get(peer.node_id)
        pace = self.pace.get(peer.node_id)
        try:
            while peer.outgoing and allowed != 0:
                count = peer.connection.send(peer.outgoing[: pace if allowed is None else allowed])
                del peer.outgoing[:count]
                if pace is not None:
                    break
                if allowed is not None:
                    allowed = self.cut_after[peer.node_id] = allowed - count
        except BlockingIOError:
            return
        except OSError:
            self._close(peer)
            return
        if allowed == 0:
            del self.cut_after[peer.node_id]
            self._close(peer)

    def _close(self, peer: Peer) -> None:
        peer.closed = True
        peer.connection.close()

    def _respond(self, peer: Peer, raw: bytes) -> bytes:
        node_id = peer.node_id
        (version,) = struct.unpack_from(">h", raw, 2)
        (correlation_id,) = struct.unpack_from(">i", raw, 4)
        assert version <= self.newest[api_key(raw)]
        if api_key(raw) == produce_api.API_KEY:
            request = ProduceRequest.decode(raw, version=version, header=True)
            response = self._produce(node_id, request)
            if any(
                row.error_code == ErrorCode.REQUEST_TIMED_OUT
                and (topic.name, row.index) in self.hung
                for topic in response.responses
                for row in topic.partition_responses
            ):
                peer.busy_turns = request.timeout_ms // TURN_MS
        elif api_key(raw) == fetch_api.API_KEY:
            response = self.fetch(node_id, FetchRequest.decode(raw, version=version, header=True))
        else:
            response = self._about_logs(node_id, raw, version)
        response.with_header(correlation_id=correlation_id, client_id="")
        return bytes(response.encode(framed=True, header=True))

    def _about_logs(self, node_id: int, raw: bytes, version: int) -> Any:
        """Response to WriteTxnMarkers or DeleteRecords."""
        is_markers = api_key(raw) == markers_api.API_KEY
        kind: Any = WriteTxnMarkersRequest if is_markers else DeleteRecordsRequest
        perform = write_markers if is_markers else delete_records
        script = self.refuse_markers if is_markers else self.refuse_deletions
        request = kind.decode(raw, version=version, header=True)
        self.requests.append(request)
        return perform(self.logs, request, fault=lambda key: self._fault(node_id, key, script))

    def _fault(self, node_id: int, key: TopicPartition, script: Script) -> int:
        if key not in self.logs:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if self.leaders[key] != node_id:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        codes = script.get(key)
        return codes.popleft() if codes else ErrorCode.NONE

    def _produce(self, node_id: int, request: Any) -> Any:
        self.requests.append(request)
        topics = ProduceResponse.TopicProduceResponse
        responses: list[Any] = []
        moved: set[int] = set()
        for topic in request.topic_data:
            rows: list[Any] = []
            for row in topic.partition_data:
                key = (self._name(topic.name or str(topic.topic_id)), row.index)
                if key in self.omit:
                    continue
                error, offset = self._fault(node_id, key, self.refuse), -1
                if request.version >= produce_api.IDS and key not in self.logs:
                    error = ErrorCode.UNKNOWN_TOPIC_ID
                if not error:
                    error = self.check_transaction(key, bytes(row.records), request.version)
                if not error:
                    error, offset = self.logs[key].produce(bytes(row.records))
                    if not error and key in self.hung:
                        error, offset = int(ErrorCode.REQUEST_TIMED_OUT), -1
                    if not error and (belated := self.belated.get(key)):
                        error, offset = belated.popleft(), -1
                rows.append(
                    topics.PartitionProduceResponse(
                        index=row.index,
                        error_code=int(error),
                        base_offset=offset,
                        log_append_time_ms=-1,
                        log_start_offset=0,
                        record_errors=[],
                        error_message=self.messages.get(key) if error else None,
                    )
                )
                if request.version >= produce_api.LEADERS:
                    moved |= self._name_leader(rows[-1], key)
            rows.reverse()
            named = topics(name=topic.name, topic_id=topic.topic_id, partition_responses=rows)
            responses.insert(0, named)
        return ProduceResponse(
            version=request.version,
            responses=responses,
            throttle_time_ms=self.throttle_ms,
            node_endpoints=self._endpoints(ProduceResponse, moved),
        )

    def _name_leader(self, row: Any, key: TopicPartition) -> set[int]:
        """Name the new leader in a row that refuses the partition (KIP-951); its node."""
        if row.error_code not in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH):
            return set()
        row.current_leader = type(row).LeaderIdAndEpoch(
            leader_id=self.leaders[key], leader_epoch=self.logs[key].epoch
        )
        return {self.leaders[key]}

    def _endpoints(self, response: Any, nodes: set[int]) -> list[Any]:
        return [
            response.NodeEndpoint(node_id=node, host=broker.host, port=broker.port, rack=None)
            for node, broker in self.nodes.items()
            if node in nodes
        ]

    def fetch(self, node_id: int, request: Any) -> Any:
        self.requests.append(request)
        version = request.version
        if self.fetch_error:
            return FetchResponse(version=version, error_code=self.fetch_error)
        if self.throttled_fetches:
            throttle_ms = self.throttled_fetches.popleft()
            return FetchResponse(version=version, throttle_time_ms=throttle_ms, session_id=0)
        requested = {
            (requested_topic(topic), row.partition): SessionEntry(topic.topic_id, row)
            for topic in request.topics
            for row in topic.partitions
        }
        if self.sessionless or request.session_epoch < 0:
            return self._fetched(node_id, request, 0, requested)
        if request.session_epoch == 0:
            self.session_ids += 1
            session_id, session = self.session_ids, requested
        elif request.session_id not in self.sessions:
            return FetchResponse(
                version=version, error_code=int(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            )
        else:
            session_id, session = request.session_id, self.sessions[request.session_id]
            for topic in request.forgotten_topics_data:
                for number in topic.partitions:
                    del session[(requested_topic(topic), number)]
            session.update(requested)
        self.sessions[session_id] = session
        return self._fetched(node_id, request, session_id, session)

    def _fetched(
        self,
        node_id: int,
        request: Any,
        session_id: int,
        session: dict[TopicPartition, SessionEntry],
    ) -> Any:
        topics = FetchResponse.FetchableTopicResponse
        room = request.max_bytes
        responses: dict[str, Any] = {}
        moved: set[int] = set()
        for (named, number), entry in list(session.items()):
            key = (self._name(named), number)
            fault = self._fetch_fault(node_id, key, entry.row, request.version)
            read = self._read(fault, key, entry.row, room, request)
            room -= sum(map(len, read.batches))
            if read.batches:  # the others come first in the next request of the session
                session[named, number] = session.pop((named, number))
            if not read.is_change() and request.session_epoch > 0:
                continue
            row = self._fetched_row(read, key, entry.row)
            if request.version >= fetch_api.LEADERS:
                moved |= self._name_leader(row, key)
            empty = topics(topic=named, topic_id=entry.topic_id, partitions=[])
            responses.setdefault(named, empty).partitions.append(row)
        return FetchResponse(
            version=request.version,
            throttle_time_ms=0,
            error_code=0,
            session_id=session_id,
            responses=list(responses.values()),
            node_endpoints=self._endpoints(FetchResponse, moved),
        )

    def _name(self, named: str) -> str:
        """Name of a topic that a request names by name or id; an unknown id stays what it is."""
        return next((name for name, id in self.topic_ids.items() if id == named), named)

    def _fetch_fault(self, node_id: int, key: TopicPartition, want: Any, version: int) -> int:
        """A leader compares the epoch that the client knows with its own (KIP-320)."""
        if version >= fetch_api.IDS and key not in self.logs:
            return ErrorCode.UNKNOWN_TOPIC_ID
        fault = self._fault(node_id, key, self.refuse)
        known = want.current_leader_epoch
        if fault or known < 0 or known == self.logs[key].epoch:
            return fault
        is_older = known < self.logs[key].epoch
        return ErrorCode.FENCED_LEADER_EPOCH if is_older else ErrorCode.UNKNOWN_LEADER_EPOCH

    def _is_late(self, key: TopicPartition, max_wait_ms: int) -> bool:
        """The read of the partition is not done in time."""
        left = self.empty_fetches.get(key, 0)
        self.empty_fetches[key] = max(0, left - 1)
        return left > 0 or max_wait_ms < self.remote_ms.get(key, 0)

    def _read(self, error: int, key: TopicPartition, want: Any, room: int, request: Any) -> Read:
        log = self.logs.get(key) or BatchLog()
        diverging = None if error else log.diverging(want.fetch_offset, want.last_fetched_epoch)
        if diverging:
            room = 0
        elif not error and not log.start <= want.fetch_offset <= log.end:
            error = ErrorCode.OFFSET_OUT_OF_RANGE
        high_watermark = log.high_watermark
        found: list[bytes] = []
        if not error and room > 0 and not self._is_late(key, request.max_wait_ms):
            if late := self.late_appends.get(key):
                log.put(late.popleft())
            limit = min(room, want.partition_max_bytes)
            stable = request.isolation_level == READ_COMMITTED
            found = log.fetch(want.fetch_offset, limit, stable=stable)
        return Read(log, int(error), diverging, high_watermark, found)

    def _fetched_row(self, read: Read, key: TopicPartition, want: Any) -> Any:
        rows = FetchResponse.FetchableTopicResponse.PartitionData
        epoch, end_offset = read.diverging or (-1, -1)
        return rows(
            diverging_epoch=rows.EpochEndOffset(epoch=epoch, end_offset=end_offset),
            partition_index=key[1],
            error_code=read.error,
            high_watermark=-1 if read.error else read.high_watermark,
            last_stable_offset=-1 if read.error else read.log.stable_end,
            log_start_offset=-1 if read.error else read.log.start,
            aborted_transactions=[
                rows.AbortedTransaction(producer_id=producer, first_offset=first)
                for producer, first in read.log.aborted_in(want.fetch_offset, read.batches)
            ],
            preferred_read_replica=-1,
            records=b"".join(read.batches),
        )


def api_key(request: bytes) -> int:
    key: int = struct.unpack_from(">h", request)[0]
    return key


def requested_topic(topic: Any) -> str:
    """Form in which a request identifies a topic: its name, or else its id."""
    return topic.topic or str(topic.topic_id)
