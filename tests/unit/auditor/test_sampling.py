"""Ranges to compare behind the copy within a byte budget."""

from __future__ import annotations

from dataclasses import replace

from ureplicator_common.audits import Differences, TopicAudit, VerifiedRange
from ureplicator_common.model import Route, TopicKey
from ureplicator_common.znode_contents import TopicIntent
from ureplicator_worker.auditor.sampling import (
    MIN_OFFSETS,
    Due,
    NewRecords,
    Sample,
    differing,
    samples,
)

NEW = {0: NewRecords(0, 10_000, 0, 100.0), 1: NewRecords(500, 2_500, 480, 100.0)}


def test_all_is_compared_where_it_fits() -> None:
    assert samples(NEW, budget_bytes=1_200_000) == {
        0: Sample(0, 10_000, 0, 0),
        1: Sample(500, 2_500, 480, 0),
    }


def test_beyond_the_budget_the_newest_part_is_compared() -> None:
    found = samples(NEW, budget_bytes=300_000)
    assert found == {0: Sample(7_500, 10_000, -1, 7_500), 1: Sample(2_000, 2_500, -1, 1_500)}
    assert sum(sample.next - sample.first for sample in found.values()) * 100 == 300_000


def test_a_part_is_worth_its_task() -> None:
    found = samples({0: NewRecords(0, 10_000, 0, 1e6)}, budget_bytes=1)
    assert found[0] == Sample(10_000 - MIN_OFFSETS, 10_000, -1, 10_000 - MIN_OFFSETS)
    few = samples({0: NewRecords(0, 50, 7, 1e6)}, budget_bytes=1)
    assert few[0] == Sample(0, 50, 7, 0)


def test_partitions_without_new_records_have_no_sample() -> None:
    assert samples({0: NewRecords(5, 5, 5, 100.0)}, budget_bytes=1) == {}


def test_ranges_that_differ_are_compared_again_as_far_as_they_fit() -> None:
    found = {
        number: VerifiedRange(0, 9_000, 1, 9_000, Differences(first, first + 9, {"missing": 2}))
        for number, first in enumerate((5_000, 20, 8_980))
    }
    key = TopicKey(Route("a", "b"), "t")
    due = Due(
        key,
        TopicIntent(3, 3, target_topic="orders"),
        TopicAudit("", "", found),
        {0: 9_000, 1: 9_000, 2: 8_985},
        1,
    )
    first, second = Sample(4_000, 5_010, -1, 0), Sample(0, 30, -1, 0)
    assert differing(due, offsets=1_040) == {0: first, 1: second}
    assert differing(due, offsets=1_039) == {0: first}
    assert differing(due, offsets=1_009) == {}
    others = replace(due, intent=TopicIntent(3, 3, source_topic_id="s", target_topic="orders"))
    remade = replace(others, audit=TopicAudit("s0", "", found))
    assert differing(remade, offsets=9_000) == {}
