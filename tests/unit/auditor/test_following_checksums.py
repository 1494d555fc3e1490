"""Passes behind the copy of a route whose batches are compared by their checksums first."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from ureplicator_common.audits import VerifiedRange
from ureplicator_common.kafka import Position
from ureplicator_common.kafka.provenance import Provenance, SameOffsets
from ureplicator_testkit.control.audit_fixture import AuditFixture
from ureplicator_testkit.control.following_fixture import (
    GROUP,
    copied,
    failing_topic,
    follower,
    ranges,
)
from ureplicator_testkit.kafka.clients import MemoryPositionReader
from ureplicator_worker.audit.core.batches import Matched, Place
from ureplicator_worker.audit.core.claims import Claim
from ureplicator_worker.audit.result import Finding, FindingKind
from ureplicator_worker.audit.stored import Wanted
from ureplicator_worker.auditor.following import SCAN_S, UNFINISHED_PASSES, RouteFollower


@pytest.fixture
def audits() -> AuditFixture:
    return AuditFixture()


@pytest.fixture
def positions() -> MemoryPositionReader:
    return MemoryPositionReader()


class Scanned:
    """Both sides are equal up to `differs_at`, which a comparison of records passes."""

    def __init__(self, differs_at: int = 1 << 60) -> None:
        self.differs_at = differs_at
        self.wanted: list[Wanted] = []

    def __call__(self, wanted: Wanted, *, late: Callable[[], bool]) -> Mapping[int, Matched]:
        if late():
            return {number: Matched(place) for number, place in wanted.places.items()}
        self.wanted.append(wanted)
        return {
            number: self._matched(place, wanted.ends[number])
            for number, place in wanted.places.items()
        }

    def _matched(self, place: Place, end: int) -> Matched:
        if not place.source <= self.differs_at < end:
            return Matched(Place(end, end))
        return Matched(Place(self.differs_at, self.differs_at), differs=True, records=20)


def aligned_follower(
    audits: AuditFixture, positions: MemoryPositionReader, *, scanner: Scanned
) -> RouteFollower:
    """A follower that has compared the first records, so it knows where the copy of the next one is."""
    following = follower(audits, positions, rate=10_000, scanner=scanner)
    for position in (0, 10):
        copied(positions, position, 0)
        following.step()
    return following


def claimed(positions: MemoryPositionReader, offset: int, same: SameOffsets) -> None:
    written = Provenance("A", "s", "t", "w", 0, 1, same=same)
    position = Position(offset, metadata=written.encode())
    positions.groups[GROUP].positions["orders", 0] = position


def test_what_is_equal_by_its_checksums_is_verified_at_any_rate(
    audits: AuditFixture, positions: MemoryPositionReader
) -> None:
    scanner = Scanned()
    following = aligned_follower(audits, positions, scanner=scanner)
    assert scanner.wanted == [], "it is not known where the copy of the first record is"
    copied(positions, 100_000_000, 0)
    audits.clock.advance(30)
    following.step()
    assert [(scan.topic, scan.places, scan.ends[0]) for scan in scanner.wanted] == [
        ("orders", {0: Place(10, 10)}, 100_000_000)
    ]
    assert len(audits.compared) == 1
    state = audits.written()
    now_ms = audits.clock.wall_ms()
    assert state.partitions[0] == VerifiedRange(0, 100_000_000, now_ms, 100_000_000)
    assert (state.passed, state.skipped) == (100_000_000, 0)
    assert (following.passed, following.compared) == (100_000_000, 100_000_000)


def test_what_was_just_written_need_not_be_read_to_go_on(
    audits: AuditFixture,
    positions: MemoryPositionReader,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The cache of ZooKeeper's tree lags behind the writes of this process."""
    following = aligned_follower(audits, positions, scanner=Scanned())
    before = audits.written()
    monkeypatch.setattr(following._nodes, "state", lambda key: before)
    copied(positions, 90_000, 0)
    following.step()
    assert len(audits.compared) == 1
    assert audits.written().skipped == 0


def test_only_the_records_around_a_difference_are_compared(
    audits: AuditFixture, positions: MemoryPositionReader
) -> None:
    scanner = Scanned()
    following = aligned_follower(audits, positions, scanner=scanner)
    scanner.differs_at = 5_000
    audits.differing = [Finding(0, FindingKind.ALTERED, 5_003, 5_003, "value")]
    copied(positions, 90_000, 0)
    following.step()
    assert ranges(audits)[1:] == [[(0, 5_000, 5_020, 5_000)]]
    assert audits.compared[1].options.stop_at_end
    state = audits.written()
    assert (state.partitions[0].first, state.partitions[0].next) == (0, 90_000)
    assert [finding.source_offset for finding in state.findings] == [5_003]
    assert (state.passed, state.skipped, following.differences) == (90_000, 0, 1)


def test_offsets_are_compared_as_the_positions_claim_them(
    audits: AuditFixture, positions: MemoryPositionReader
) -> None:
    """Records that lie elsewhere stay there, so they are not compared again."""
    scanner = Scanned()
    following = aligned_follower(audits, positions, scanner=scanner)
    scanner.differs_at = 5_000
    audits.differing = [Finding(0, FindingKind.SHIFTED, 5_000, 5_001)]
    claimed(positions, 90_000, SameOffsets(4_000, 0))
    following.step()
    assert scanner.wanted[0].claims == {0: Claim(4_000, 0, 90_000)}
    assert [wanted.claim for wanted in audits.compared[1].partitions] == [Claim(4_000, 0, 90_000)]
    compared = len(audits.compared)
    claimed(positions, 90_000, SameOffsets(6_000, 1, "a takeover"))
    for _ in range(3):
        audits.clock.advance(600)
        following.step()
    state = audits.written()
    assert (len(audits.compared), following.differences) == (compared, 1)
    assert state.differences == {"shifted": 1}
    assert [(found.kind, found.target_offset) for found in state.findings] == [("shifted", 5_001)]


def test_what_is_missing_for_a_time_beside_shifted_records_is_compared_again(
    audits: AuditFixture, positions: MemoryPositionReader
) -> None:
    scanner = Scanned()
    following = aligned_follower(audits, positions, scanner=scanner)
    scanner.differs_at = 5_000
    audits.differing = [Finding(0, FindingKind.SHIFTED, 5_000, 5_001)]
    claimed(positions, 5_500, SameOffsets(4_000, 0))
    following.step()
    scanner.differs_at = 5_600
    audits.differing = [Finding(0, FindingKind.MISSING, 5_600, -1)]
    claimed(positions, 6_000, SameOffsets(5_550, 1, "a takeover"))
    audits.clock.advance(600)
    following.step()
    assert audits.written().differences == {"missing": 1, "shifted": 1}
    audits.differing = []
    for _ in range(4):
        audits.clock.advance(600)
        following.step()
    assert audits.written().differences == {"shifted": 1}


def test_a_failure_around_a_difference_is_one_of_the_topic(
    audits: AuditFixture, positions: MemoryPositionReader
) -> None:
    scanner = Scanned()
    following = follower(audits, positions, scanner=scanner)
    copied(positions, 0, 0)
    following.step()
    copied(positions, 10, 0)
    following.step()
    scanner.differs_at = 5_000
    failing_topic(audits, following, "orders")
    copied(positions, 90_000, 0)
    following.step()
    assert len(audits.compared) == 2, "it is not tried again in the same pass"
    assert audits.written().failure == "RuntimeError: Job aborted due to stage failure"
    assert len(following.failures.failing) == 1


def test_what_a_pass_does_not_reach_is_left_to_the_next_one_for_some_time(
    audits: AuditFixture, positions: MemoryPositionReader
) -> None:
    """A difference takes long to be explained: what follows is not left out."""
    scanner = Scanned()
    following = aligned_follower(audits, positions, scanner=scanner)
    audits.before_end = lambda: audits.clock.advance(SCAN_S + 1)
    copied(positions, 90_000, 0)
    for number in range(UNFINISHED_PASSES):
        scanner.differs_at = 5_000 + 20 * number
        following.step()
        assert audits.written().partitions[0].next == scanner.differs_at + 20
        assert audits.written().skipped == 0
    scanner.differs_at += 20
    following.step()
    assert audits.written().partitions[0].next == 90_000
    assert audits.written().skipped > 0
