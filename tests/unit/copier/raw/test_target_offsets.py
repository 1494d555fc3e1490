"""Segments and rounding, against a target's log that is kept record by record."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ureplicator_common.offset_map.partition_map import MapView
from ureplicator_worker.batches.offsets import SourceOffsets
from ureplicator_worker.copier.raw import target_offsets
from ureplicator_worker.copier.raw.target_offsets import (
    EXACT_SEGMENTS,
    MAX_SEGMENTS,
    RUNS_PER_BATCH,
    UNKNOWN,
    TargetOffsets,
    target_offset,
)
from ureplicator_worker.lifeline.measures import Segment

OTHER = -1
"""In the target's log: a marker, or what no reader gets."""
STEPS = ("batch", "batch", "batch", "hole", "unplaced", "lost response", "commit", "abort")


@dataclass
class Model:
    """The target's log: the source offset of each record. `position`: the next one to copy.

    `stored`: the committed position in the source. `end_known`: the end of the log is, at the start.
    """

    transactional: bool
    log: list[int] = field(default_factory=list)
    position: int = 0
    stored: int = 0
    open_from: int = -1
    end_known: bool = True
    mapped: bool = False

    def __post_init__(self) -> None:
        end = len(self.log) if self.end_known else UNKNOWN
        self.offsets = TargetOffsets(position=0, target_end=end, mapped=self.mapped)

    @property
    def end(self) -> int:
        """End of what is committed."""
        return self.open_from if self.open_from >= 0 else len(self.log)

    def offsets_from(self, holes: list[int]) -> list[int]:
        """Source offsets of records with these distances."""
        found = []
        for hole in holes:
            found.append(self.position + hole)
            self.position = found[-1] + 1
        return found

    def append(self, source: list[int], *, placed: bool = True) -> None:
        base = len(self.log)
        if self.transactional and self.open_from < 0:
            self.open_from = base
        self.log += source
        runs = [(0, source[0])]
        runs += [(n + 1, b) for n, (a, b) in enumerate(pairwise(source)) if b != a + 1]
        plain = len(runs) == 1
        self.offsets.acknowledged(
            source[0],
            None if plain else SourceOffsets(tuple(runs)),
            target=base if placed else UNKNOWN,
            records=len(source),
            transactional=self.transactional,
        )

    def commit(self) -> None:
        if self.open_from >= 0:
            self.log.append(OTHER)
            self.open_from = -1
            self.offsets.commit()
        self.stored = self.position

    def abort(self) -> None:
        """The records lie in the log, and no reader gets them."""
        if self.open_from >= 0:
            self.log[self.open_from :] = [OTHER] * (len(self.log) - self.open_from + 1)
            self.open_from = -1
        self.offsets.rewind()
        self.position = self.stored

    def assert_true(self) -> None:
        segments = self.offsets.segments()
        assert len(segments) <= MAX_SEGMENTS
        for segment in segments:
            for offset in range(segment.first, segment.end):
                assert self.log[segment.target + offset - segment.first] == offset
        for former, latter in pairwise(segments):
            assert former.end <= latter.first
            assert former.target + former.end - former.first <= latter.target
        assert all(s.target + s.end - s.first <= self.end for s in segments)

    def assert_rounded_down(self) -> None:
        """A consumer that goes on there misses nothing."""
        segments = self.offsets.segments()
        for source in range(self.position + 3):
            at = target_offset(segments, source)
            if at is None:
                continue
            following = {
                offset for offset in self.log[: self.end] if source <= offset < self.position
            }
            assert following <= set(self.log[at : self.end])
            assert at <= self.end


def play(model: Model, history: list[tuple[str, list[int]]]) -> None:
    for step, holes in history:
        match step:
            case "batch":
                model.append(model.offsets_from(holes))
            case "unplaced":
                model.append(model.offsets_from([0, 0]), placed=False)
            case "hole":
                model.position += 3
            case "lost response" if not model.transactional:
                model.log += (model.position, model.position + 1)
                model.append(model.offsets_from([0, 0]))
            case "commit" if model.transactional:
                model.commit()
            case "abort" if model.transactional:
                model.abort()
        model.assert_true()


HISTORIES = st.lists(
    st.tuples(
        st.sampled_from(STEPS), st.lists(st.sampled_from([0, 0, 0, 2]), min_size=1, max_size=6)
    ),
    max_size=25,
)


@settings(max_examples=100)
@given(HISTORIES, st.booleans(), st.integers(0, 5), st.booleans())
def test_segments_are_true_and_offsets_are_rounded_down(
    history: list[tuple[str, list[int]]], transactional: bool, there: int, end_known: bool
) -> None:
    model = Model(transactional, [OTHER] * there, end_known=end_known)
    play(model, history)
    model.assert_rounded_down()


@settings(max_examples=100)
@given(HISTORIES, st.integers(0, 20))
def test_what_is_not_marked_as_repeated_is_there_once(
    history: list[tuple[str, list[int]]], sent: int
) -> None:
    """`sent`: by a former owner, behind the position."""
    model = Model(transactional=False)
    model.log += range(sent)
    play(model, history)
    for segment in model.offsets.segments():
        if not segment.repeated:
            for offset in range(segment.first, segment.end):
                assert model.log.count(offset) == 1


@settings(max_examples=200)
@example([("unplaced", [0]), ("abort", [0]), ("batch", [0]), ("batch", [0, 2])], True, False)
@example([("unplaced", [0]), ("abort", [0]), ("hole", [0]), ("batch", [0, 2])], True, True)
@given(HISTORIES, st.booleans(), st.booleans())
def test_segments_for_a_map_are_exact(
    history: list[tuple[str, list[int]]], transactional: bool, end_known: bool
) -> None:
    """Each offset means the last copy of its record, or of the next one; neighbours say so if they follow."""
    model = Model(transactional, [], end_known=end_known, mapped=True)
    play(model, history)
    model.commit()
    is_exact = all(step != "unplaced" for step, _ in history)
    segments = model.offsets.segments_from(0)
    view = MapView.of(segments)
    copies = {offset: at for at, offset in enumerate(model.log) if offset != OTHER}
    known = sorted(source for source in copies if segments and source >= segments[0].first)
    for offset in range(segments[0].first if known else 0, known[-1] + 1 if known else 0):
        at = view.forward(offset)
        assert at is not None
        assert at <= (place := copies[known[bisect_left(known, offset)]])
        assert at == place or not is_exact
    for source in known:
        back = view.backward(copies[source])
        assert back is None or back <= source
        assert back == source or not is_exact


def test_what_was_left_out_is_not_followed() -> None:
    offsets = TargetOffsets(position=0, target_end=0, mapped=True)
    for number in range(1_000):
        offsets.acknowledged(2 * number, None, target=number, records=1, transactional=False)
    written = offsets.segments_from(0)
    assert len(written) == 1_000
    assert all(part.follows for part in written[1:])
    assert len(offsets.segments_from(500)) == 500
    left = offsets.segments_from(0)
    assert len(left) < 700
    for before, segment in pairwise(left):
        assert segment.follows is (segment.target == before.target + 1)
    gone = next(part for part in left[::-1] if not part.follows)
    offsets.acknowledged(
        gone.first - 1, None, target=gone.target - 1, records=1, transactional=False
    )
    assert not offsets.segments_from(0)[-1].follows


def test_a_batch_full_of_holes_is_in_the_map_record_by_record() -> None:
    runs = [(n, 3 * n) for n in range(3_000)]
    offsets = TargetOffsets(position=0, target_end=7, mapped=True)
    offsets.acknowledged(
        0, SourceOffsets(tuple(runs)), target=7, records=3_000, transactional=False
    )
    assert [tuple(segment) for segment in offsets.segments_from(0)] == [
        (3 * n, 3 * n + 1, 7 + n, False, n > 0) for n in range(3_000)
    ]
    assert len(offsets.segments()) <= MAX_SEGMENTS


def test_segments_for_a_map_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target_offsets, "UNWRITTEN_SEGMENTS", 500)
    offsets = TargetOffsets(position=0, target_end=0, mapped=True)
    for number in range(5_000):
        offsets.acknowledged(2 * number, None, target=number, records=1, transactional=False)
        assert len(offsets._older) <= 500 * target_offsets._FIELDS
    for before, segment in pairwise(offsets.segments_from(0)):
        assert segment.follows is (segment.target == before.target + 1)


def test_the_constant_holds_while_nothing_lies_between() -> None:
    model = Model(transactional=False, log=[OTHER] * 7)
    for _ in range(1_000):
        model.append(model.offsets_from([0] * 5))
    assert model.offsets.segments() == (Segment(0, 5_000, 7),)


def test_a_transaction_ends_a_segment_and_counts_once_it_is_committed() -> None:
    model = Model(transactional=True)
    model.append(model.offsets_from([0] * 3))
    assert model.offsets.segments() == (Segment(0, 0, 0),)
    model.commit()
    model.append(model.offsets_from([0] * 2))
    model.abort()
    model.append(model.offsets_from([0] * 4))
    model.commit()
    first, second = Segment(0, 3, 0), Segment(3, 7, 3 + 1 + 2 + 1)
    assert model.offsets.segments() == (first, second)


def test_records_of_a_former_owner_are_repeated_and_what_follows_is_not() -> None:
    model = Model(transactional=False)
    model.log += [0, 1, 2]
    model.append(model.offsets_from([0] * 5))
    assert model.offsets.segments() == (Segment(0, 3, 3, repeated=True), Segment(3, 5, 6))
    assert target_offset(model.offsets.segments(), 1) == 4


def test_without_the_end_of_the_log_nothing_is_known_before_the_first_batch() -> None:
    offsets = TargetOffsets(position=5, target_end=UNKNOWN)
    assert offsets.segments() == ()
    offsets.acknowledged(5, None, target=90, records=3, transactional=False)
    assert offsets.segments() == (Segment(5, 8, 90),)
    assert target_offset(offsets.segments(), 4) is None


def test_consumers_before_the_first_record_go_on_at_it() -> None:
    """A group at the start of a log that begins with an aborted transaction."""
    offsets = TargetOffsets(position=5, target_end=UNKNOWN)
    offsets.acknowledged(25, None, target=90, records=3, transactional=False)
    assert offsets.segments() == (Segment(5, 5, 90), Segment(25, 28, 90))
    assert [segment[:4] for segment in offsets.segments_from(90)] == list(offsets.segments())
    assert [target_offset(offsets.segments(), source) for source in (4, 5, 20, 26)] == [
        None,
        90,
        90,
        91,
    ]


def test_consumers_before_a_batch_full_of_holes_go_on_at_its_first_record() -> None:
    """They do not go on at the first of its segments that is kept."""
    runs = tuple((index, 20 + 2 * index) for index in range(10 * RUNS_PER_BATCH))
    offsets = TargetOffsets(position=5, target_end=UNKNOWN)
    offsets.acknowledged(20, SourceOffsets(runs), target=90, records=len(runs), transactional=False)
    assert [target_offset(offsets.segments(), source) for source in (5, 20, 22)] == [90, 90, 90]


def test_records_of_unknown_place_may_be_the_first() -> None:
    offsets = TargetOffsets(position=5, target_end=UNKNOWN)
    offsets.acknowledged(5, None, target=UNKNOWN, records=3, transactional=False)
    offsets.acknowledged(9, None, target=93, records=3, transactional=False)
    assert offsets.segments() == (Segment(9, 12, 93),)


def test_what_the_target_lost_is_forgotten() -> None:
    offsets = TargetOffsets(position=0, target_end=0)
    offsets.acknowledged(0, None, target=0, records=10, transactional=False)
    offsets.acknowledged(20, None, target=10, records=10, transactional=False)
    offsets.acknowledged(30, None, target=7, records=5, transactional=False)
    assert offsets.segments() == (Segment(0, 7, 0), Segment(30, 35, 7))
    assert target_offset(offsets.segments(), 25) == 7


def test_a_log_that_was_truncated_and_written_on_takes_the_place_of_the_former() -> None:
    offsets = TargetOffsets(position=0, target_end=0)
    offsets.acknowledged(0, None, target=0, records=10, transactional=False)
    offsets.acknowledged(4, None, target=10, records=3, transactional=False)
    assert offsets.segments() == (Segment(0, 4, 0), Segment(4, 7, 10))


def test_of_several_outputs_of_a_record_the_first_counts() -> None:
    """Within a batch, and where a batch ends between them; also if it lies at an unknown place."""
    offsets = TargetOffsets(position=0, target_end=0)
    for runs, target in (
        ([(0, 0), (1, 0), (2, 0)], 0),
        ([(0, 1), (2, 2), (3, 2)], 3),
        ([(0, 2), (1, 3)], UNKNOWN),
        ([(0, 3), (1, 4)], 9),
    ):
        records = runs[-1][0] + 1
        batch = SourceOffsets(tuple(runs))
        offsets.acknowledged(
            batch.at(0), batch, target=target, records=records, transactional=False
        )
    assert offsets.segments() == (Segment(0, 1, 0), Segment(1, 3, 3), Segment(4, 5, 10))
    assert target_offset(offsets.segments(), 3) == 5


@pytest.mark.parametrize("outputs", [1, 2, 3])
def test_a_batch_full_of_holes_takes_a_few_segments(outputs: int) -> None:
    runs = [(n, n // outputs * 2) for n in range(3_000)]
    offsets = TargetOffsets(position=0, target_end=0)
    offsets.acknowledged(
        0, SourceOffsets(tuple(runs)), target=0, records=3_000, transactional=False
    )
    segments = offsets.segments()
    assert len(segments) <= RUNS_PER_BATCH + 1
    for segment in segments:
        at = segment.target
        assert runs[at][1] == segment.first
        assert at == 0 or runs[at - 1][1] < segment.first, "not the first output"


@pytest.mark.parametrize("outputs", [2, 3, 4])
@pytest.mark.parametrize("records", [1, 16, 167, 500])
def test_the_last_record_of_several_outputs_is_known(outputs: int, records: int) -> None:
    runs = [(n, n // outputs) for n in range(records * outputs)]
    offsets = TargetOffsets(position=0, target_end=-1)
    offsets.acknowledged(
        0, SourceOffsets(tuple(runs)), target=0, records=len(runs), transactional=False
    )
    last = offsets.segments()[-1]
    assert (last.end, last.target) == (records, (records - 1) * outputs)


def test_old_segments_are_left_out_the_more_the_older_they_are() -> None:
    offsets = TargetOffsets(position=0, target_end=0)
    batches, size = 5_000, 10
    place = size + 1  # a marker behind each batch
    for number in range(batches):
        offsets.acknowledged(
            number * size, None, target=number * place, records=size, transactional=True
        )
        offsets.commit()
        assert len(offsets.segments()) <= MAX_SEGMENTS
        newest = [segment.first for segment in offsets.segments()[-EXACT_SEGMENTS:]]
        assert newest == [n * size for n in range(number + 1)[-EXACT_SEGMENTS:]]
    segments, end = offsets.segments(), batches * size
    assert segments[0].first == 0
    for back in range(1, end, 97):
        source = end - back
        true = source // size * place + source % size
        found = target_offset(segments, source)
        assert found is not None
        assert found <= true
        assert true - found <= (0 if back < EXACT_SEGMENTS * size else 4 * back)


def test_the_number_is_bounded_whatever_the_distances() -> None:
    offsets = TargetOffsets(position=0, target_end=0)
    source = 0
    for number in range(3_000):
        source += 1 << number % 50
        offsets.acknowledged(source, None, target=number, records=1, transactional=False)
        assert len(offsets.segments()) <= MAX_SEGMENTS
    assert len(offsets._older) % target_offsets._FIELDS == 0


def test_an_aborted_transaction_behind_a_hole_leaves_nothing() -> None:
    """A consumer on the way back would otherwise go on behind the hole, which may hold records by then."""
    model = Model(transactional=True, mapped=True)
    model.append(model.offsets_from([0, 0]))
    model.commit()
    model.append(model.offsets_from([3]))
    model.abort()
    (segment,) = model.offsets.segments_from(0)
    assert segment[:3] == (0, 2, 0)
    model.append(model.offsets_from([1, 0]))
    (before, segment) = model.offsets.segments_from(0)
    assert before[:3] == (0, 2, 0)
    assert segment == (3, 5, 5, False, True)
