"""Rounds of an audit: what goes on from a former result, and ranges with nothing to compare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from ureplicator_common.kafka import Extent
from ureplicator_worker.audit.core.claims import Claim
from ureplicator_worker.audit.core.pending import Limits
from ureplicator_worker.audit.job import merged, run_audit
from ureplicator_worker.audit.result import (
    NO_OFFSET,
    AuditRequest,
    AuditResult,
    AuditState,
    Finding,
    FindingKind,
    PartitionRange,
    PartitionResult,
)
from ureplicator_worker.audit.task import Outcome, Start, Work, uncompared

DONE = PartitionResult(0, 0, 10, 12, end=10, compared=10)
FOUND = Finding(0, FindingKind.MISSING, 4, NO_OFFSET)
REQUEST = AuditRequest("a.b", "t", "t", (), source_topic_id="s", target_topic_id="d")
CLUSTERS: dict[str, dict[str, str]] = {"a": {}, "b": {}}


class TaskList:
    """Spark with one core whose tasks end with these outcomes, one after the other."""

    defaultParallelism = 1  # Spark's name

    def __init__(self, *outcomes: Outcome) -> None:
        self._outcomes = list(outcomes)
        self.works: list[Work] = []

    @property
    def sparkContext(self) -> TaskList:  # Spark's name
        return self

    def setJobGroup(self, *_: str) -> None:  # Spark's name
        """Nobody ends it."""

    def parallelize(self, works: Sequence[Work], _: int) -> TaskList:
        self.works += works
        return self

    def mapPartitions(self, _: Any) -> TaskList:  # Spark's name
        return self

    def collect(self) -> list[Outcome]:
        return [self._outcomes.pop(0)]


def run(spark: TaskList, *ranges: PartitionRange, former: AuditResult | None = None) -> AuditResult:
    request = replace(REQUEST, partitions=ranges)
    return run_audit(spark, request, clusters=CLUSTERS, on_progress=lambda _: None, former=former)


def test_partitions_that_are_not_wanted_stay_as_they_were() -> None:
    other = replace(DONE, partition=1, verified_to=6)
    former = AuditResult("a.b", "t", "t", (DONE, other), (FOUND,))
    spark = TaskList(Outcome(replace(other, verified_from=6, verified_to=10, compared=4)))
    result = run(spark, PartitionRange(1, 10), former=former)
    assert result.partitions == (DONE, replace(other, verified_to=10, compared=14))
    assert result.findings == (FOUND,)
    assert [work.range.partition for work in spark.works] == [1]


def test_no_more_partitions_are_compared_at_a_time_than_are_wanted() -> None:
    spark = TaskList(*(Outcome(replace(DONE, partition=number)) for number in range(3)))
    spark.defaultParallelism = 16
    request = replace(REQUEST, partitions=tuple(PartitionRange(n, DONE.end) for n in range(3)))
    taken: list[int] = []
    run_audit(
        spark,
        request,
        clusters=CLUSTERS,
        on_progress=lambda _: taken.append(len(spark.works)),
        parallelism=1,
    )
    assert taken == [1, 2, 3]


def test_the_result_is_of_topics_with_these_ids() -> None:
    result = run(TaskList())
    assert (result.source_topic_id, result.target_topic_id) == ("s", "d")


def test_a_partition_without_a_position_is_not_verified() -> None:
    spark = TaskList(Outcome(DONE))
    result = run(spark, PartitionRange(0, 10), PartitionRange(1, 0, uncompared="no position"))
    assert (result.state, result.reason) == (AuditState.NOT_VERIFIED, "partition 1: no position")


def test_the_place_at_the_target_is_sought_again_where_nothing_was_compared() -> None:
    """A round may end before the first match: the next one has no place to go on at."""
    nothing = PartitionResult(0, 4, 4, 20, end=10, uncompared="the target has no records")
    spark = TaskList(Outcome(nothing), Outcome(replace(DONE, verified_from=6, compared=4)))
    result = run(spark, PartitionRange(0, 10))
    assert [work.range for work in spark.works] == [
        PartitionRange(0, 10),
        PartitionRange(0, 10, 4, NO_OFFSET),
    ]
    assert result.partitions[0] == replace(DONE, verified_from=6, compared=4)


def test_each_round_knows_what_the_position_claims() -> None:
    half = replace(DONE, verified_to=5, target_to=6, compared=5)
    spark = TaskList(Outcome(half), Outcome(replace(DONE, verified_from=5, compared=5)))
    wanted = PartitionRange(0, 10, claim=Claim(0, 1, 10))
    run(spark, wanted)
    assert [work.range for work in spark.works] == [
        wanted,
        replace(wanted, first=5, target_first=6),
    ]


def test_what_is_verified_begins_behind_a_gap() -> None:
    """The target lost what it had not compared yet."""
    before = replace(DONE, verified_to=5, compared=5)
    after = replace(DONE, verified_from=8, compared=2)
    assert merged(before, after) == replace(DONE, verified_from=8, compared=7)
    assert merged(before, replace(after, verified_from=5)).verified_from == 0


START = Start(0, 30, leading=True, limits=Limits())
EMPTY = PartitionResult(0, 10, 10, 30, end=10)


@pytest.mark.parametrize(
    ("originals", "copies", "passed", "reason"),
    [
        (Extent(0, 12), Extent(30, 30), 10, "the target has no records"),
        (Extent(12, 12), Extent(0, 9), 0, "the source has no record before 10 any more"),
        (Extent(0, 12), Extent(30, 40), 10, "no record of the source was found at the target"),
        (Extent(0, 12), Extent(0, 0), 0, ""),  # markers and aborted records alone
    ],
)
def test_reasons_of_ranges_with_nothing_to_compare(
    originals: Extent, copies: Extent, passed: int, reason: str
) -> None:
    start = replace(START, source=originals.start)
    assert uncompared(EMPTY, PartitionRange(0, 10), start, passed, originals, copies) == reason


@pytest.mark.parametrize("count", ["compared", "compacted", "repeated", "missing", "foreign"])
def test_ranges_with_something_to_compare(count: str) -> None:
    changes: dict[str, Any] = {count: 1}
    result = replace(EMPTY, **changes)
    found = uncompared(result, PartitionRange(0, 10), START, 10, Extent(0, 12), Extent(30, 30))
    assert found == ""


def test_records_of_each_kind_are_added_up() -> None:
    before: dict[str, Any] = {kind.value: 2 for kind in FindingKind}
    after: dict[str, Any] = {kind.value: 3 for kind in FindingKind}
    whole = merged(replace(DONE, **before), replace(DONE, **after))
    assert {kind: getattr(whole, kind) for kind in before} == dict.fromkeys(before, 5)
