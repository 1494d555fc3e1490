"""Repeats are accounted for by commits and lost writers, or they are reported."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from ureplicator_testkit.histories.events import Seen
from ureplicator_testkit.histories.repeats import (
    NO_LOST_WRITER,
    Lost,
    Replay,
    late,
    lost,
    replays,
    unexplained,
)
from ureplicator_testkit.records.commits import CommittedOffset

GAP = 100
"""Source offsets begin here: they are not the records' numbers."""


def log(numbers: Iterable[int]) -> tuple[Seen, ...]:
    return tuple(Seen(GAP + 2 * number, number, 0) for number in numbers)


SOURCE = log(range(40))
COMMITS = [
    CommittedOffset(0, GAP + 2 * number, epoch, worker)
    for number, epoch, worker in [(0, 1, "w1"), (6, 1, "w1"), (12, 1, "w1"), (30, 2, "w2")]
]


def wrong(target: Iterable[int], who: Lost) -> list[str]:
    return unexplained({0: SOURCE}, {0: log(target)}, COMMITS, who)


def test_replays() -> None:
    found = replays(SOURCE, log([0, 1, 2, 1, 2, 3, 4, 2, 5, 6, 5, 6]))
    assert found == [Replay(GAP + 2, 2), Replay(GAP + 4, 1), Replay(GAP + 10, 2)]


def test_what_the_source_holds_twice_is_repeated_the_third_time() -> None:
    source = [0, 1, 2, 1, 3]
    assert replays(log(source), log(source)) == []
    assert replays(log(source), log([*source, 1, 3])) == [Replay(GAP + 2, 1), Replay(GAP + 6, 1)]


def test_a_clean_copy_needs_no_explanation() -> None:
    assert not wrong(range(40), NO_LOST_WRITER)


def test_nothing_is_repeated_unless_a_writer_was_lost() -> None:
    repeating = [*range(15), *range(12, 40)]
    assert "no lost writer" in wrong(repeating, NO_LOST_WRITER)[0]
    assert "no lost writer" in wrong(repeating, lost("w3"))[0]
    assert not wrong(repeating, lost("w1"))


def test_a_repeat_begins_at_a_position_of_the_lost_writer() -> None:
    assert "not from a position" in wrong([*range(15), *range(11, 40)], lost("w1"))[0]
    assert "not from a position" in wrong([*range(33), *range(30, 40)], lost("w1"))[0]


def test_a_position_between_two_records_means_the_next_one() -> None:
    commits = [CommittedOffset(0, GAP + 2 * 12 - 1, 1, "w1"), *COMMITS[:2]]
    target = log([*range(15), *range(12, 40)])
    assert not unexplained({0: SOURCE}, {0: target}, commits, lost("w1"))


def test_a_lost_writer_repeats_no_more_than_two_intervals() -> None:
    commits = [CommittedOffset(0, GAP + 2 * number, 1, "w1") for number in (0, 6, 12, 18, 23)]

    def wrong(end: int) -> list[str]:
        target = log([*range(end), *range(12, 40)])
        return unexplained({0: SOURCE}, {0: target}, commits, lost("w1"))

    assert not wrong(24)
    assert "more than 12" in wrong(25)[0]


def test_a_writer_lost_in_its_first_interval_may_repeat_all_that_it_found() -> None:
    """It took over at 12, copied up to 36, and was lost; its successor committed at 30 first."""
    assert not wrong([*range(12), *range(12, 36), *range(12, 40)], lost("w1", "w2"))


def test_what_arrives_late_lies_behind_a_position() -> None:
    """Its writer was frozen, or its requests were held up, until its successor had copied up to 30."""
    beyond = [*range(12), *range(12, 30), *range(15, 32), *range(32, 40)]
    assert not wrong(beyond, late("w1"))
    assert "no lost writer" in wrong(beyond, late("w3"))[0]
    assert "before the first position" in wrong([*range(33), *range(11, 40)], late("w2"))[0]


@pytest.mark.parametrize("who", [lost("w2"), late("w2")])
def test_a_writer_lost_before_its_first_commit_repeats_from_what_it_found(who: Lost) -> None:
    """It took over at 12 and copied up to 20, and began there again before it committed 30."""
    assert not wrong([*range(20), *range(12, 40)], who)
    assert wrong([*range(20), *range(11, 40)], who)


@pytest.mark.parametrize("who", [lost("w3"), late("w3")])
def test_a_writer_lost_without_any_commit_shows_by_its_epoch(who: Lost) -> None:
    """It was the owner between the two others, and copied from 12 to 20."""
    between = [*COMMITS[:-1], replace(COMMITS[-1], owner_epoch=3)]
    repeating = {0: log([*range(20), *range(12, 40)])}
    assert not unexplained({0: SOURCE}, repeating, between, who)
    assert unexplained({0: SOURCE}, repeating, COMMITS, who)
    assert unexplained({0: SOURCE}, repeating, between, NO_LOST_WRITER)
    assert unexplained({0: SOURCE}, {0: log([*range(20), *range(11, 40)])}, between, who)


def test_commits_of_another_partition_explain_nothing() -> None:
    """They do not tell who held it, nor how much an interval is."""
    repeating = {0: log([*range(15), *range(12, 40)])}
    elsewhere = [replace(commit, partition=1) for commit in COMMITS]
    assert "no lost writer" in unexplained({0: SOURCE}, repeating, elsewhere, lost("w1"))[0]
    narrow = [CommittedOffset(0, GAP + 2 * number, 1, "w1") for number in (11, 12, 13)]
    assert not unexplained({0: SOURCE}, repeating, COMMITS, lost("w1"))
    (found,) = unexplained({0: SOURCE}, repeating, [*narrow, *elsewhere], lost("w1"))
    assert "3 repeated from offset 124: more than 2" in found
