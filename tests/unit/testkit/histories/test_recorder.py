"""The file of a history gives back what was added, in order, with times that grow."""

from dataclasses import replace
from pathlib import Path

import pytest

from ureplicator_testkit.histories.events import (
    Acknowledged,
    Commits,
    Ended,
    Event,
    Fault,
    Positions,
    Read,
    Seen,
    Sent,
    decode,
)
from ureplicator_testkit.histories.reader import seen, whole
from ureplicator_testkit.histories.recorder import History, load
from ureplicator_testkit.records.commits import CommittedOffset
from ureplicator_testkit.records.comparison import ConsumedRecord
from ureplicator_testkit.records.labels import labelled

EVENTS: list[Event] = [
    Sent({0: (1, 2), 3: (4,)}),
    Sent({0: (3,)}, transaction=7),
    Acknowledged({0: (1, 2)}),
    Ended(7, committed=False),
    Read("target", "r", "read_committed", {0: (Seen(5, 1, 99), Seen(6, -1, 0))}),
    Read("source", "r", "read_uncommitted", {}, whole=True),
    Positions("r", {0: 5, 1: -1}),
    Commits((CommittedOffset(0, 5, 2, "w1"),)),
    Fault("SIGKILL: broker 2"),
]


def test_events_are_given_back_in_order(tmp_path: Path) -> None:
    history = History(tmp_path / "a.history")
    for event in EVENTS:
        history.add(event)
    found = list(history.events())
    history.close()
    assert [replace(given, at_s=0.0) for given in found] == EVENTS
    times = [given.at_s for given in found]
    assert times == sorted(times)
    assert list(load(history.path)) == found


def test_a_history_is_appended_to(tmp_path: Path) -> None:
    for _ in range(2):
        history = History(tmp_path / "a.history")
        history.add(Fault("x"))
        history.close()
    assert len(list(history.events())) == 2


def test_an_unknown_event_is_refused() -> None:
    with pytest.raises(ValueError, match="Whim"):
        decode('["Whim", 1]')


def record(partition: int, number: int) -> ConsumedRecord:
    made = labelled("t", partition, number)
    return ConsumedRecord(50 + number, made.key, made.value, made.headers, 1, made.timestamp or 3)


def test_a_record_is_known_by_its_label() -> None:
    tombstone = 3
    for number in (0, tombstone):
        found = seen(record(0, number), "t", 0)
        assert (found.offset, found.number) == (50 + number, number)
    assert seen(record(0, 5), "t", 1).number == -1
    assert seen(record(0, 5), "u", 0).number == -1
    assert seen(ConsumedRecord(0, None, None, (), 1, 1), "t", 0).number == -1


def test_every_part_of_a_record_counts() -> None:
    made = record(0, 7)
    changed = [
        replace(made, key=b"other"),
        replace(made, headers=(("h", b"2"),)),
        replace(made, timestamp=4),
        replace(made, timestamp_type=2),
        replace(made, value=(made.value or b"") + b"x"),
    ]
    digests = {seen(variant, "t", 0).digest for variant in (made, *changed)}
    assert len(digests) == 1 + len(changed)


def test_a_whole_log() -> None:
    log = {0: [record(0, 1)], 1: [record(0, 2)]}
    found = whole("source", log, "t")
    assert found.whole
    assert [entry.number for some in found.records.values() for entry in some] == [1, -1]
