"""Reports of gaps, and of records that were skipped."""

from __future__ import annotations

import pytest

from ureplicator_common.model import Gap, GapPolicy, OwnerEpoch, Partition, Route, RouteSettings
from ureplicator_testkit.copier.commands import Commands
from ureplicator_testkit.copier.stub_lane import StubLane
from ureplicator_worker.copier.gaps import SKIPPED_TOGETHER_S, Gaps
from ureplicator_worker.copier.messages import GapFound, RecordSkipped
from ureplicator_worker.copier.position_values import StartPosition
from ureplicator_worker.lifeline.messages import GapPassed, Grant, Message

P0, P1 = (Partition(Route("a", "b"), "t", number) for number in range(2))
WALL_MS = 60_000_000


class Fixture:
    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.lane = StubLane()
        self.gaps = Gaps(
            lane=self.lane, ownership=Commands(), send=self.sent.append, wall_ms=lambda: WALL_MS
        )

    def skip(self, partition: Partition, offset: int, now_s: float) -> None:
        self.gaps.skipped(RecordSkipped(partition, f"too large at {offset}", offset), now_s)


def passed(partition: Partition, reason: str, first: int, after: int) -> GapPassed:
    return GapPassed(partition, Gap(reason, first, after, wall_ms=WALL_MS))


def test_skipped_records_of_a_second_are_reported_together() -> None:
    at = Fixture()
    for offset in (5, 9, 6):
        at.skip(P0, offset, now_s=100.0)
    at.skip(P1, 1_000, now_s=100.5)
    at.gaps.work(100.0 + SKIPPED_TOGETHER_S / 2)
    assert at.sent == []
    at.gaps.work(100.0 + SKIPPED_TOGETHER_S)
    skipped = "skipped (abort_on_send_failure: false)"
    assert at.sent == [passed(P0, f"3 records {skipped}: too large at 6", 5, 10)]
    at.gaps.leave(P1)
    assert at.sent[1:] == [passed(P1, f"1 record {skipped}: too large at 1000", 1_000, 1_001)]
    at.gaps.leave(P0)
    at.gaps.work(500.0)
    assert len(at.sent) == 2


@pytest.mark.parametrize("policy", [GapPolicy.EARLIEST, GapPolicy.LATEST])
@pytest.mark.parametrize(
    ("located", "cause"),
    [
        (3, "its log ends before that"),
        (42, "deleted there, by retention or DeleteRecords"),
    ],
)
def test_an_offset_is_before_the_log_or_behind_it(
    policy: GapPolicy, located: int, cause: str
) -> None:
    at = Fixture()
    grant = Grant(OwnerEpoch(1), "t", settings=RouteSettings(on_gap=policy))
    at.lane.begin(P0, grant, StartPosition(5, 0, 5, "A", "x", "y"))
    at.gaps.pass_over(GapFound(P0, "out of range", 5), grant)
    assert at.sent == []
    at.gaps.located(P0, located)
    assert at.sent == [passed(P0, f"out of range: {cause}", 5, located)]
    assert at.lane.position[P0] == located


@pytest.mark.parametrize("next_offset", [-1, 40])
def test_a_gap_that_will_be_found_again_is_reported_once(next_offset: int) -> None:
    """The transaction was aborted: what was read before the gap is fetched once more."""
    at = Fixture()
    grant = Grant(OwnerEpoch(1), "t", settings=RouteSettings(on_gap=GapPolicy.EARLIEST))
    at.lane.begin(P0, grant, StartPosition(5, 0, 5, "A", "x", "y"))
    for rewound in ({P0}, set[Partition]()):
        at.lane.rewound = rewound
        at.gaps.pass_over(GapFound(P0, "out of range", 5, next_offset), grant)
        at.gaps.located(P0, 40)
    (sent,) = at.sent
    assert isinstance(sent, GapPassed)
    assert (sent.gap.first_offset, sent.gap.next_offset) == (5, 40)
