"""Positions against acknowledgements in the record lane, in any order of events.

The model: each source offset has outputs in some of three target partitions. The position may be at most
the first offset with an output that is not acknowledged, and is exactly behind everything once all is.
"""

from collections import deque

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ureplicator_worker.batches.header import HEADER_BYTES
from ureplicator_worker.batches.offsets import SourceOffsets
from ureplicator_worker.copier.net.buffers import BufferPool
from ureplicator_worker.copier.raw.batch import Batch
from ureplicator_worker.copier.record.window import Chunk, OutputWindow, RecordWindow, output_of

TARGETS = 3


class RecordWindowMachine(RuleBasedStateMachine):
    """Fetch, handle, send, acknowledge, lose, split; the process may be lost at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BufferPool(limit_bytes=1 << 30)
        self.window = RecordWindow(position=0, leader_epoch=0, target_end=-1)
        self.targets = [self.window.own, self.window.output(), self.window.output()]
        for target in self.targets:
            target.restart(1, 0)
        self.fetched = 0
        self.chunks: deque[Chunk] = deque()
        self.open: dict[int, int] = {}
        """Outputs of each source offset that are not acknowledged."""
        self.unhandled: set[int] = set()
        self.sent: list[deque[Batch]] = [deque() for _ in self.targets]

    @rule(records=st.integers(1, 5), hole=st.integers(0, 3))
    def fetch(self, records: int, hole: int) -> None:
        lease = self.pool.adopt(bytes(100))
        end = self.fetched + records
        self.window.keep(lease, position=self.fetched, next_offset=end, leader_epoch=0)
        self.unhandled |= set(range(self.fetched, end))
        self.fetched = end + hole
        if hole:
            self.window.pass_over(self.fetched, 0)

    @precondition(lambda self: self.window.waits)
    @rule()
    def give(self) -> None:
        self.chunks.append(self.window.take())

    @precondition(lambda self: self.chunks)
    @rule(part=st.integers(1, 4), outputs=st.lists(st.integers(0, TARGETS - 1), max_size=4))
    def handle(self, part: int, outputs: list[int]) -> None:
        """Handle some more offsets of the oldest chunk, whose last one has these outputs."""
        chunk = self.chunks[0]
        left = sorted(offset for offset in self.unhandled if offset < chunk.next_offset)
        handled = left[:part]
        if handled:
            self._result(chunk, handled, outputs)
        if len(left) <= part:
            self.window.done(self.chunks.popleft())

    def _result(self, chunk: Chunk, handled: list[int], outputs: list[int]) -> None:
        self.unhandled -= set(handled)
        result = self.window.handled(chunk, handled[-1] + 1)
        assert result is not None
        for number in outputs:
            data = bytearray(HEADER_BYTES + 10)
            lease = self.pool.adopt(data)
            batch = Batch(
                lease.view,
                lease=lease,
                first_offset=handled[-1],
                next_offset=0,
                leader_epoch=0,
                records=1,
                max_timestamp_ms=0,
                offsets=SourceOffsets.from_(handled[-1]),
            )
            self.targets[number].push(output_of(batch, result))
        if outputs:
            self.open[handled[-1]] = len(outputs)
        self.window.advance()

    @rule(number=st.integers(0, TARGETS - 1))
    def send(self, number: int) -> None:
        batch = self.targets[number].next()
        if batch is not None:
            self.sent[number].append(batch)

    @rule(number=st.integers(0, TARGETS - 1))
    def acknowledge(self, number: int) -> None:
        if self.sent[number]:
            self._settled(self.sent[number][0].first_offset)
            self.targets[number].acknowledged(self.sent[number].popleft(), -1)

    def _settled(self, offset: int) -> None:
        self.open[offset] -= 1
        if not self.open[offset]:
            del self.open[offset]

    @rule(number=st.integers(0, TARGETS - 1))
    def lose(self, number: int) -> None:
        """The connection is gone: all that was sent is sent again."""
        for batch in self.sent[number]:
            self.targets[number].lost(batch)
        self.sent[number].clear()

    @rule(number=st.integers(0, TARGETS - 1))
    def skip(self, number: int) -> None:
        """The target refuses the first waiting batch, and it is skipped."""
        target: OutputWindow = self.targets[number]
        head = target.head if not target.in_flight else None
        if head is not None and head.sequence >= 0:
            self._settled(head.first_offset)
            target.replace_head([], next_offset=0)

    @precondition(lambda self: self.chunks)
    @rule()
    def lose_process(self) -> None:
        for chunk in reversed(self.chunks):
            self.window.give_back(chunk)
        self.chunks.clear()

    @precondition(lambda self: not self.chunks)
    @rule()
    def shed(self) -> None:
        place = self.window.shed()
        if place is not None:
            self.unhandled = {offset for offset in self.unhandled if offset < place[0]}
            self.fetched = place[0]

    @invariant()
    def position_is_behind_nothing_open(self) -> None:
        first = min([*self.open, *self.unhandled], default=self.fetched)
        assert self.window.position <= first

    @invariant()
    def position_is_at_the_end_once_all_is_settled(self) -> None:
        if not self.open and not self.unhandled and not self.chunks:
            assert self.window.position == self.fetched
            assert self.window.empty

    def teardown(self) -> None:
        self.window.discard()
        assert self.window.empty
        assert self.pool.used_bytes == 0


TestRecordWindow = RecordWindowMachine.TestCase
TestRecordWindow.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)


def test_what_follows_finish_is_only_what_is_on_its_way() -> None:
    pool = BufferPool(limit_bytes=1 << 20)
    window = RecordWindow(position=0, leader_epoch=0, target_end=-1)
    for offset in (0, 10):
        lease = pool.adopt(bytes(300_000))
        window.keep(lease, position=offset, next_offset=offset + 10, leader_epoch=0)
    chunk = window.take()
    part = window.handled(chunk, 5)
    assert part is not None
    window.advance()
    window.finish()
    assert window.empty
    assert window.position == 5
    assert window.handled(chunk, 7) is None
    window.done(chunk)
    window.give_back(chunk)
    assert window.position == 5
    assert pool.used_bytes == 0


def test_what_waits_again_begins_where_results_ended() -> None:
    """The next process would otherwise handle those records twice, also exactly once."""
    pool = BufferPool(limit_bytes=1 << 20)
    window = RecordWindow(position=0, leader_epoch=0, target_end=-1)
    window.keep(pool.adopt(b"x"), position=0, next_offset=10, leader_epoch=0)
    chunk = window.take()
    assert window.handled(chunk, 7) is not None
    window.give_back(chunk)
    assert [batch.position for batch in window.take().batches] == [7]
    window.discard()


def test_chunks_hold_one_leader_epoch() -> None:
    pool = BufferPool(limit_bytes=1 << 20)
    window = RecordWindow(position=0, leader_epoch=0, target_end=-1)
    for epoch in (0, 0, 1):
        window.keep(pool.adopt(b"x"), position=0, next_offset=1, leader_epoch=epoch)
    assert [len(window.take().batches), len(window.take().batches)] == [2, 1]
    window.discard()


def test_chunks_end_at_their_size() -> None:
    pool = BufferPool(limit_bytes=1 << 20)
    window = RecordWindow(position=0, leader_epoch=0, target_end=-1, chunk_bytes=10)
    for size in (4, 6, 1, 30, 10):
        window.keep(pool.adopt(bytes(size)), position=0, next_offset=1, leader_epoch=0)
    assert [window.take().size_bytes for _ in range(4)] == [10, 1, 30, 10]
    window.discard()
