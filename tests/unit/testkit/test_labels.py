"""Records that name themselves: in the wrong partition, lost or twice they are noticed."""

from collections.abc import Iterable

import pytest

from ureplicator_testkit.records.comparison import ConsumedRecord
from ureplicator_testkit.records.labels import (
    HEADERS,
    Label,
    assert_holds,
    assert_none_lost,
    label_of,
    labelled,
    labelled_records,
    numbers,
)
from ureplicator_testkit.records.topics import NewRecord


def consumed(records: Iterable[NewRecord]) -> tuple[ConsumedRecord, ...]:
    return tuple(
        ConsumedRecord(n, r.key, r.value, r.headers, 1, r.timestamp or 5)
        for n, r in enumerate(records)
    )


def part(partition: int, count: int = 30) -> tuple[ConsumedRecord, ...]:
    return consumed(labelled("t", partition, number, filler_bytes=7) for number in range(count))


def test_every_record_has_its_label_even_a_tombstone() -> None:
    found = [label_of(record) for record in part(3, 50)]
    assert found == [Label("t", 3, number) for number in range(50)]


def test_records_are_of_all_kinds_and_no_two_are_equal() -> None:
    made = list(labelled_records("t", partitions=2, count=100))
    assert len({(r.key, r.value) for r in made}) == 200
    assert {r.headers for r in made} == set(HEADERS)
    assert {None, b""} < {r.key for r in made}
    assert any(r.value is None for r in made)
    assert {r.timestamp is None for r in made} == {True, False}


def test_a_record_in_the_wrong_partition_is_noticed() -> None:
    assert numbers({0: part(0), 1: part(1)}, "t")[1].total() == 30
    with pytest.raises(AssertionError, match="t/0 holds records of"):
        numbers({0: part(0) + part(1, 1)}, "t")
    with pytest.raises(AssertionError, match="u/0 holds records of"):
        numbers({0: part(0)}, "u")


def test_what_was_acknowledged_must_be_there_once() -> None:
    log = {0: part(0)}
    assert_holds(log, "t", {0: range(30)})
    with pytest.raises(AssertionError, match="lost 1 records, first \\[30\\]"):
        assert_holds(log, "t", {0: range(31)})
    with pytest.raises(AssertionError, match="holds twice 2 records"):
        assert_holds({0: part(0) + part(0, 2)}, "t", {0: range(30)})
    with pytest.raises(AssertionError, match="nothing"):
        assert_holds(log, "t", {})


def test_what_its_producer_repeated_is_not_lost() -> None:
    assert_none_lost({0: part(0) + part(0, 2)}, "t", {0: range(30)})
    with pytest.raises(AssertionError, match="lost 1 records, first \\[30\\]"):
        assert_none_lost({0: part(0) + part(0, 2)}, "t", {0: range(31)})
