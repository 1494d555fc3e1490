"""Results of a chunk: all outputs, in the order of the source, whatever stays as it is."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ureplicator_testkit.copier.handler_process import NoLimit
from ureplicator_testkit.records import batches
from ureplicator_testkit.records.batches import Row
from ureplicator_worker.copier.record.encoding import BATCH_BYTES, Ready
from ureplicator_worker.copier.record.handler_calls import (
    PASSED_BYTES,
    REPORT_AFTER_S,
    ChunkFailed,
    ChunkWork,
    outputs_of,
)
from ureplicator_worker.handlers import Handler, Output, Record

OTHER = "u"
ACTIONS = ("same", "same", "same", "drop", "change", "other", "twice", "late")
DEAD = "dead"

Act = Callable[[Record], Iterable[Record | Output]]


class Acting(Handler):
    def __init__(self, act: Act) -> None:
        self._act = act

    def handle(self, record: Record) -> Iterable[Record | Output]:
        return self._act(record)


class Sink:
    """Results of a chunk."""

    def __init__(self, act: Act = lambda record: (record,)) -> None:
        limit = NoLimit(1.0, outputs=outputs_of)
        self.ready: list[Ready] = []
        self.next_offsets: list[int] = []
        self.now_s = 0.0
        self.work = ChunkWork(
            Acting(act),
            dead_letter_topic=DEAD,
            limit=limit,
            partition_count=lambda topic: 1,
            report=self._report,
            now_s=lambda: self.now_s,
        )

    def _report(self, next_offset: int, ready: Iterable[Ready]) -> None:
        self.next_offsets.append(next_offset)
        self.ready += ready

    def run(self, *stored: bytes, position: int = 0) -> None:
        views = [(memoryview(batch), position) for batch in stored]
        self.work.run("t", 0, "t", views)
        self.work.finish(batches.field(stored[-1], "base_offset") + 1_000_000)

    def values(self, topic: str = "t") -> list[bytes | None]:
        return [row.value for ready in self._of(topic) for row in batches.decode(ready.built.data)]

    def offsets(self, topic: str = "t") -> list[int]:
        """Source offsets that the copier is given for them."""
        return [
            ready.built.offsets.at(index)
            for ready in self._of(topic)
            for index in range(ready.built.records)
        ]

    def _of(self, topic: str) -> list[Ready]:
        return [ready for ready in self.ready if ready.target == (topic, 0)]


def rows(first: int, count: int, size: int) -> list[Row]:
    return [(n, b"k", b"%d" % n + b"." * size, ()) for n in range(first, first + count)]


def expected(record: Record, action: str) -> dict[str, list[bytes | None]]:
    value = record.value or b""
    found: dict[str, dict[str, list[bytes | None]]] = {
        "same": {"t": [value]},
        "late": {"t": [value]},
        "drop": {},
        "change": {"t": [value + b"!"]},
        "other": {OTHER: [value]},
        "twice": {"t": [value, value], OTHER: [value]},
    }
    return found[action]


def outputs(record: Record, action: str) -> Iterable[Record | Output]:
    match action:
        case "same":
            return (record,)
        case "late":
            return iter([record])
        case "drop":
            return ()
        case "change":
            return [record.output(value=(record.value or b"") + b"!")]
        case "other":
            return [record.output(topic=OTHER)]
    return [record, record.output(topic=OTHER), record]


@given(st.data())
def test_outputs_are_in_the_order_of_the_source(data: st.DataObject) -> None:
    stored, actions, offset = [], {}, 0
    for _ in range(data.draw(st.integers(1, 4))):
        count = data.draw(st.integers(1, 6))
        size = data.draw(st.sampled_from([0, 200, PASSED_BYTES]))
        codec = data.draw(st.sampled_from([batches.NONE, batches.ZSTD]))
        stored.append(batches.batch(rows(offset, count, size), base_offset=offset, codec=codec))
        same = data.draw(st.booleans())
        for number in range(offset, offset + count):
            actions[number] = "same" if same else data.draw(st.sampled_from(ACTIONS))
        offset += count
    position = data.draw(st.integers(0, offset - 1))
    wanted: dict[str, list[bytes | None]] = {"t": [], OTHER: []}

    def act(record: Record) -> Iterable[Record | Output]:
        for topic, found in expected(record, actions[record.offset]).items():
            wanted[topic] += found
        return outputs(record, actions[record.offset])

    sink = Sink(act)
    sink.run(*stored, position=position)
    for topic, values in wanted.items():
        assert sink.values(topic) == values
        assert sink.offsets(topic) == [
            int((value or b"").split(b".")[0].strip(b"!")) for value in values
        ]


@pytest.mark.parametrize("codec", batches.CODECS)
def test_a_large_batch_that_stays_as_it_is_is_sent_as_it_is(codec: int) -> None:
    """The batch has random bytes, which no codec makes small."""
    some = random.Random(codec)  # noqa: S311
    found: list[Row] = [(n, b"k", some.randbytes(PASSED_BYTES // 4), ()) for n in range(7, 12)]
    stored = batches.batch(found, base_offset=7, codec=codec)
    sink = Sink()
    sink.run(stored)
    assert [bytes(ready.built.data) for ready in sink.ready] == [stored]
    assert sink.offsets() == [7, 8, 9, 10, 11]


@pytest.mark.parametrize("what", ["holes", "stamped", "position", "small"])
def test_other_batches_are_built(what: str) -> None:
    size = 0 if what == "small" else PASSED_BYTES
    stored = batches.batch(
        rows(0, 4, size),
        deltas=(0, 1, 3, 5) if what == "holes" else None,
        attributes=8 if what == "stamped" else 0,
    )
    sink = Sink()
    sink.run(stored, position=1 if what == "position" else 0)
    (built,) = (ready.built for ready in sink.ready)
    assert bytes(built.data) != stored
    assert sink.offsets() == {"holes": [0, 1, 3, 5], "position": [1, 2, 3]}.get(what, [0, 1, 2, 3])


def test_small_batches_become_one() -> None:
    stored = [batches.batch(rows(n, 1, 10), base_offset=n) for n in range(100)]
    sink = Sink()
    sink.run(*stored)
    (ready,) = sink.ready
    assert ready.built.records == 100


def test_results_of_a_slow_handler_are_reported_while_it_works() -> None:
    def act(record: Record) -> Iterable[Record | Output]:
        sink.now_s += REPORT_AFTER_S * 0.6
        return (record,)

    sink = Sink(act)
    sink.run(*(batches.batch(rows(n, 1, 10), base_offset=n) for n in range(5)))
    assert sink.next_offsets[:2] == [2, 4]
    assert sink.offsets() == [0, 1, 2, 3, 4]


def test_batches_of_one_size_at_most_whatever_is_stored() -> None:
    """One stored batch of 1 MB with a change at its end: it cannot be sent as it is."""
    size = 3_000
    count = 2 * BATCH_BYTES // size
    sink = Sink(lambda record: (record,) if record.offset < count - 1 else ())
    sink.run(batches.batch(rows(0, count, size)))
    assert len(sink.offsets()) == count - 1
    sizes = [len(ready.built.data) for ready in sink.ready]
    assert max(sizes) <= BATCH_BYTES + (128 << 10)
    assert len(sizes) >= 2


def test_what_comes_before_a_failure_is_reported() -> None:
    def act(record: Record) -> Iterable[Record | Output]:
        if record.offset == 3:
            return [record.output(topic="gone")]
        return (record,)

    sink = Sink(act)
    sink.work._partition_count = lambda topic: 0
    with pytest.raises(ChunkFailed, match="no topic gone"):
        sink.run(batches.batch(rows(0, 9, 0)))
    assert sink.offsets() == [0, 1, 2]
    assert sink.next_offsets == [3]


def test_a_dead_letter_keeps_its_place_among_the_others() -> None:
    def act(record: Record) -> Iterable[Record | Output]:
        if record.offset == 3:
            raise ValueError("bad")
        return (record,)

    sink = Sink(act)
    found = rows(0, 5, PASSED_BYTES)
    found[3] = (*found[3][:3], [("own", b"1")])
    sink.run(batches.batch(found))
    assert sink.offsets() == [0, 1, 2, 4]
    assert sink.offsets(DEAD) == [3]
    (letter,) = batches.decode(sink._of(DEAD)[0].built.data)
    headers = dict(letter.headers)
    reason = headers.pop("ureplicator.dead-letter.reason") or b""
    assert re.fullmatch(rb"ValueError: bad in test_chunk_work\.py:\d+", reason)
    assert headers == {
        "own": b"1",
        "ureplicator.dead-letter.topic": b"t",
        "ureplicator.dead-letter.partition": b"0",
        "ureplicator.dead-letter.offset": b"3",
    }
