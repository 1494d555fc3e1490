"""The comparison: each difference of a copy is reported as what it is, and a good copy as clean."""

import pytest

from ureplicator_testkit.records.comparison import ConsumedRecord, PartitionDifference, compare


def record(value: str, *, key: str = "k", timestamp: int = 1) -> ConsumedRecord:
    return ConsumedRecord(0, key.encode(), value.encode(), (), 1, timestamp)


def judge(source: str, target: str) -> PartitionDifference:
    """Each letter is one record."""
    logs = [{0: [record(letter, key=letter) for letter in text]} for text in (source, target)]
    return compare(*logs).partitions[0]


def values(records: tuple[ConsumedRecord, ...]) -> str:
    return "".join((r.value or b"").decode() for r in records)


def test_equal() -> None:
    assert judge("abcab", "abcab").clean


def test_missing_even_if_equal_ones_exist() -> None:
    assert values(judge("abca", "abc").missing) == "a"


def test_extra() -> None:
    assert values(judge("abc", "abxc").extra) == "x"


def test_a_replay_is_duplicates_but_not_disorder() -> None:
    report = judge("abcd", "abcbcd")
    assert report.faultless
    assert values(report.duplicates) == "bc"


def test_out_of_order() -> None:
    assert values(judge("abc", "acb").reordered) == "b"


def test_a_changed_time_is_one_difference() -> None:
    comparison = compare({0: [record("a")]}, {0: [record("a", timestamp=2)]})
    report = comparison.partitions[0]
    assert len(report.different) == 1
    assert not report.missing
    assert not report.extra
    assert compare({0: [record("a")]}, {0: [record("a", timestamp=2)]}, timestamps=False).clean


def test_a_partition_missing_on_one_side() -> None:
    comparison = compare({0: [record("a")]}, {1: [record("a")]})
    assert [len(r.missing) + len(r.extra) for r in comparison.partitions] == [1, 1]


def test_nothing_is_no_proof() -> None:
    for empty in (compare({}, {}), compare({0: []}, {0: []})):
        with pytest.raises(AssertionError, match="nothing was compared"):
            empty.assert_clean()
        with pytest.raises(AssertionError, match="nothing was compared"):
            empty.assert_faultless()
