"""The judge of histories: a clean history has no anomaly, and every planted one is found as what it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ureplicator_common.model import Delivery
from ureplicator_testkit.histories.anomalies import Anomaly, Kind
from ureplicator_testkit.histories.checker import Promise, assert_sound, check
from ureplicator_testkit.histories.events import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    UNNAMED,
    Acknowledged,
    Commits,
    Ended,
    Event,
    Fault,
    Positions,
    Read,
    Seen,
    Sent,
)
from ureplicator_testkit.histories.repeats import lost
from ureplicator_testkit.records.commits import CommittedOffset

ONCE = Promise(Delivery.EXACTLY_ONCE, transactional=True)
EVERYONE = Promise(Delivery.EXACTLY_ONCE)
LEAST = Promise()
SOURCE_GAP, TARGET_GAP = 2, 3
"""Offsets of the logs: markers lie between the records."""
PARTITION, OTHER = 0, 1
ABORTED = 1_000
"""Number of the first aborted record."""


@dataclass
class Story:
    """Partition 0, copied in portions of `width` records each, under the eyes of a reader."""

    count: int
    width: int
    isolation: str = READ_COMMITTED
    """Of the reader."""
    aside: list[Seen] = field(default_factory=list)
    """In partition 0 of the target, for readers of uncommitted records only."""
    source: list[Seen] = field(init=False)
    target: list[Seen] = field(init=False)
    reads: list[Read | Positions] = field(init=False)
    commits: list[CommittedOffset] = field(init=False)

    def __post_init__(self) -> None:
        numbers = range(self.count)
        self.source = [Seen(10 + SOURCE_GAP * n, n, 7 * n) for n in numbers]
        self.target = [Seen(TARGET_GAP * n, n, 7 * n) for n in numbers]
        self.reads, self.commits = [], []
        for first in range(0, self.count, self.width):
            records = self.target[first : first + self.width]
            position = self.source[first + len(records) - 1].offset + 1
            self.reads += [self.read(records), Positions("r", {PARTITION: position})]
            self.commits.append(CommittedOffset(PARTITION, position, 1, "w1"))

    def append(self, *seen: Seen) -> None:
        """Append at the end of the target's log, where the reader finds it, too."""
        self.target += seen
        self.reads.append(self.read(seen))

    def events(self) -> Iterator[Event]:
        numbers = {PARTITION: range(self.count), OTHER: range(3)}
        yield Sent(numbers)
        yield Sent({PARTITION: [ABORTED, ABORTED + 1]}, transaction=1)
        yield Ended(1, committed=False)
        yield Acknowledged(numbers)
        yield Fault("SIGKILL w1")
        yield from self.reads
        yield Commits(self.commits)
        other = [Seen(n, n, n) for n in range(3)]
        for end, isolation, log in (
            ("source", READ_COMMITTED, self.source),
            ("target", READ_COMMITTED, self.target),
            ("target", READ_UNCOMMITTED, [*self.target, *self.aside]),
        ):
            records = {PARTITION: log, OTHER: other}
            yield Read(end, "at the end", isolation, records, whole=True)

    def read(self, records: list[Seen] | tuple[Seen, ...]) -> Read:
        return Read("target", "r", self.isolation, {PARTITION: list(records)})


stories = st.builds(Story, st.integers(4, 40), st.integers(1, 9))
places = st.integers(1, 1_000)


def kinds(found: list[Anomaly]) -> set[Kind]:
    return {anomaly.kind for anomaly in found}


@given(stories)
def test_a_clean_history_has_no_anomaly(story: Story) -> None:
    for promise in (ONCE, LEAST, EVERYONE):
        assert check(story.events(), promise) == []


@given(stories, places)
def test_a_reader_that_was_stopped_early_proves_what_it_saw(story: Story, kept: int) -> None:
    del story.reads[kept % len(story.reads) :]
    assert check(story.events(), ONCE) == []


# --- planted anomalies: each changes a story at a place -------------------------------------------


def lose(story: Story, place: int) -> None:
    del story.target[place]
    story.reads.clear()


def lose_the_last(story: Story, _place: int) -> None:
    lose(story, -1)


def lose_at_the_source(story: Story, place: int) -> None:
    del story.source[place]
    lose(story, place)


def repeat(story: Story, place: int) -> None:
    story.append(story.target[place]._replace(offset=1_000))


def repeat_a_range(story: Story, place: int) -> None:
    for step, seen in enumerate(story.target[place:]):
        story.append(seen._replace(offset=1_000 + step))


def reorder(story: Story, place: int) -> None:
    before, after = story.target[place - 1], story.target[place]
    swapped = [before._replace(number=after.number, digest=after.digest)]
    swapped.append(after._replace(number=before.number, digest=before.digest))
    story.target[place - 1 : place + 1] = swapped
    story.reads.clear()


def change(story: Story, place: int) -> None:
    story.target[place] = story.target[place]._replace(digest=-1)
    story.reads.clear()


def copy_an_aborted_record(story: Story, place: int) -> None:
    story.append(Seen(1_000, ABORTED + place % 2, 0))


def copy_to_the_wrong_partition(story: Story, place: int) -> None:
    story.append(Seen(1_000 + place, UNNAMED, 0))


def invent(story: Story, place: int) -> None:
    story.append(Seen(1_000, 2_000 + place, 0))


def abort_and_keep(story: Story, _place: int) -> None:
    story.source.append(Seen(10_000, ABORTED, 1))


def show_before_the_position(story: Story, place: int) -> None:
    """One partition's part of a transaction, while the positions of the rest are not there yet."""
    at = 2 * ((place - 1) // story.width) + 1
    position = story.reads[at]
    assert isinstance(position, Positions)
    behind = story.source[place - place % story.width].offset if place % story.width else 0
    story.reads[at] = replace(position, offsets={PARTITION: min(behind, story.source[0].offset)})


def step_back(story: Story, place: int) -> None:
    """The reader finds once more what it has found, and the log holds it once."""
    story.reads.append(story.read([story.target[place]]))


def see_what_vanishes(story: Story, place: int) -> None:
    story.reads.append(story.read([Seen(TARGET_GAP * place + 10_000, ABORTED, 0)]))


def see_another_record_there(story: Story, place: int) -> None:
    story.target[place] = story.target[place]._replace(offset=story.target[place].offset + 1)


def skip(story: Story, place: int) -> None:
    """A record that the reader passed by is in the log at the end."""
    seen = [record for record in story.target if record.offset != story.target[place].offset]
    story.append(Seen(10_000, ABORTED, 0))
    story.reads = [story.read([*seen, story.target[-1]])]


def commit_back(story: Story, _place: int) -> None:
    story.commits.append(replace(story.commits[-1], offset=0))


def commit_of_an_older_owner(story: Story, _place: int) -> None:
    story.commits.append(replace(story.commits[-1], owner_epoch=0))


Plant = Callable[[Story, int], None]
PLANTED: list[tuple[Plant, Kind]] = [
    (lose, Kind.LOST),
    (lose_the_last, Kind.LOST),
    (lose_at_the_source, Kind.LOST),
    (repeat, Kind.REPEATED),
    (repeat_a_range, Kind.REPEATED),
    (reorder, Kind.REORDERED),
    (change, Kind.CHANGED),
    (copy_an_aborted_record, Kind.PHANTOM),
    (copy_to_the_wrong_partition, Kind.PHANTOM),
    (invent, Kind.PHANTOM),
    (abort_and_keep, Kind.PHANTOM),
    (show_before_the_position, Kind.TORN),
    (step_back, Kind.STEP_BACK),
    (see_what_vanishes, Kind.VANISHED),
    (see_another_record_there, Kind.VANISHED),
    (skip, Kind.SKIPPED),
    (commit_back, Kind.STALE_COMMIT),
    (commit_of_an_older_owner, Kind.STALE_COMMIT),
]
TRANSACTIONAL = {Kind.TORN}


@pytest.mark.parametrize(("plant", "kind"), PLANTED, ids=[p.__name__ for p, _ in PLANTED])
@given(story=stories, place=places)
def test_a_planted_anomaly_is_found(plant: Plant, kind: Kind, story: Story, place: int) -> None:
    plant(story, 1 + place % (story.count - 1))
    for promise in (ONCE, LEAST, EVERYONE):
        expected = kind not in TRANSACTIONAL or promise is ONCE
        assert (kind in kinds(check(story.events(), promise))) is expected


def test_every_kind_is_planted() -> None:
    assert {kind for _, kind in PLANTED} == set(Kind) - {Kind.NO_PROOF}


# --- what each delivery admits --------------------------------------------------------------------


def test_repeats_of_a_lost_writer_are_admitted_at_least_once_only() -> None:
    story = Story(40, 5)
    repeat_a_range(story, 35)  # from its position before the last
    excused = replace(LEAST, lost=lost("w1"))
    assert check(story.events(), excused) == []
    assert kinds(check(story.events(), replace(excused, lost=lost("w2")))) == {Kind.REPEATED}
    assert Kind.REPEATED in kinds(check(story.events(), replace(ONCE, lost=lost("w1"))))


@pytest.mark.parametrize("promise", [ONCE, LEAST])
def test_what_the_source_holds_twice_is_no_repeat(promise: Promise) -> None:
    """A producer may repeat a record of its own."""
    story = Story(9, 3)
    story.source[4] = story.source[4]._replace(number=2, digest=story.source[2].digest)
    story.target[4] = story.target[4]._replace(number=2, digest=story.target[2].digest)
    story.reads.clear()
    acknowledged: list[Event] = [
        event for event in story.events() if not isinstance(event, Acknowledged)
    ]
    acknowledged.insert(0, Acknowledged({PARTITION: [0, 1]}))
    assert check(acknowledged, promise) == []
    repeat(story, 2)
    assert Kind.REPEATED in kinds(check(story.events(), promise))


def test_positions_of_what_was_not_read_prove_nothing() -> None:
    story = Story(4, 1)
    story.reads.insert(0, Positions("r", {PARTITION: -1, OTHER: 2}))
    assert check(story.events(), ONCE) == []


def test_in_transactions_uncommitted_reads_prove_nothing() -> None:
    story = Story(4, 1, aside=[Seen(1_000, 2, 14)])
    read_anything = Read("target", "u", READ_UNCOMMITTED, {PARTITION: [Seen(5, ABORTED, 0)]})
    assert check([*story.events(), read_anything], ONCE) == []


def test_without_transactions_uncommitted_records_are_judged_too() -> None:
    """A record that only readers of everything find twice; and a reader of theirs that goes back."""
    story = Story(4, 1, isolation=READ_UNCOMMITTED, aside=[Seen(1_000, 2, 14)])
    (found,) = check(story.events(), EVERYONE)
    assert str(found) == "repeated: target read_uncommitted 0: 1 (2)"
    story.aside.clear()
    step_back(story, 1)
    (found,) = check(story.events(), EVERYONE)
    assert (found.kind, found.place) == (Kind.STEP_BACK, "target read_uncommitted 0, r")


def test_without_a_log_of_uncommitted_records_nothing_is_proven() -> None:
    events = [
        event
        for event in Story(4, 1).events()
        if not (isinstance(event, Read) and event.isolation == READ_UNCOMMITTED)
    ]
    assert check(events, ONCE) == []
    assert kinds(check(events, EVERYONE)) == {Kind.NO_PROOF}


def test_nothing_is_no_proof() -> None:
    assert kinds(check([], ONCE)) == {Kind.NO_PROOF}
    without = [event for event in Story(4, 1).events() if not isinstance(event, Acknowledged)]
    with pytest.raises(AssertionError, match="nothing was acknowledged"):
        assert_sound(without, ONCE)


def test_an_anomaly_names_what_and_where() -> None:
    story = Story(40, 5)
    del story.target[3:30]
    (found,) = (e for e in check(story.events(), ONCE) if e.kind is Kind.LOST)
    assert str(found) == "lost: target 0: 27 (10, 11, 12, 13, 14, ...)"
