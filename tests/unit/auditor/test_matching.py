"""Checksums first, records only where they differ: planted differences are named, and little else is read."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import pytest

from ureplicator_testkit.records.batches import TRANSACTIONAL, batch, patched
from ureplicator_testkit.records.copies import Placed, chunks, content
from ureplicator_worker.audit.core.batches import HEADER, Aborted, Lockstep, Matched, Place, parsed
from ureplicator_worker.audit.core.comparison import Comparison
from ureplicator_worker.audit.core.side import Content, Side
from ureplicator_worker.audit.result import AuditResult, FindingKind, PartitionResult
from ureplicator_worker.auditor.matching import GAPS, Progress, matched
from ureplicator_worker.auditor.sampling import Sample

COUNT, SIZE = 6_000, 20


class Topic:
    """One partition, and a copy of it. `read`: source offsets whose records were compared."""

    def __init__(self, copy: Sequence[Sequence[Content]]) -> None:
        """`copy`: batches of the target."""
        source = [[content(n) for n in range(at, at + SIZE)] for at in range(0, COUNT, SIZE)]
        self._source, self._target = _stored(source), _stored(copy)
        self._originals = list(enumerate(record for batch in source for record in batch))
        self._copies = list(enumerate(record for batch in copy for record in batch))
        self.read: list[tuple[int, int]] = []
        self.scans = 0

    def scan(self, places: Mapping[int, Place], ends: Mapping[int, int]) -> dict[int, Matched]:
        self.scans += 1
        return {
            number: Lockstep(
                (piece for piece in self._source if piece.next > place.source),
                (piece for piece in self._target if piece.next > place.target),
                place=place,
                end=ends[number],
            ).run()
            for number, place in places.items()
        }

    def compare(self, gaps: Mapping[int, Sample]) -> tuple[AuditResult, str]:
        ((number, gap),) = gaps.items()
        found = Comparison(
            number,
            _side(self._originals, gap.first),
            _side(self._copies, gap.target_first),
            required=gap.next,
            leading=False,
            tail=lambda: chunks(self._originals[: gap.first]),
        )
        while found.step() and not (found.quiet and found.next_offsets[0] >= gap.next):
            pass
        found.finish()
        reached, copy = found.next_offsets
        self.read.append((gap.first, reached))
        compared = PartitionResult(
            number,
            gap.first,
            reached,
            copy,
            gap.next,
            found.compared,
            missing=found.counts[FindingKind.MISSING],
            altered=found.counts[FindingKind.ALTERED],
            reordered=found.counts[FindingKind.REORDERED],
            foreign=found.counts[FindingKind.FOREIGN],
            repeated=found.counts[FindingKind.REPEATED],
        )
        return AuditResult("a.b", "orders", "orders", (compared,), tuple(found.findings)), ""

    def matched(self, end: int = COUNT, *, late: bool = False) -> Progress:
        return matched(
            {0: Place(0, 0)},
            {0: end},
            scan=self.scan,
            compare=self.compare,
            late=lambda: late,
            at_ms=1,
        )


def _stored(batches: Sequence[Sequence[Content]]) -> list:  # type: ignore[type-arg]
    found, offset = [], 0
    for contents in batches:
        rows = [(time, key, value, list(headers)) for key, value, headers, time in contents]
        whole = patched(
            batch(rows, base_offset=offset), attributes=TRANSACTIONAL, producer_id=offset
        )
        found.append(parsed(whole[: HEADER.size], timestamps=True, aborted=Aborted())[0])
        offset += len(contents)
    return found


def _side(log: Sequence[Placed], first: int) -> Side:
    return Side(chunks(log[first:], size=50), first)


def whole() -> list[list[Content]]:
    return [[content(n) for n in range(at, at + SIZE)] for at in range(0, COUNT, SIZE)]


def findings(progress: Progress) -> list[tuple[str, int]]:
    return [(f.kind, f.source_offset) for _, found in progress.compared for f in found]


def test_what_is_equal_is_never_read_by_records() -> None:
    topic = Topic(whole())
    progress = topic.matched()
    assert (progress.places[0], topic.read, topic.scans) == (Place(COUNT, COUNT), [], 1)
    (verified,) = progress.compared[0][0].values()
    assert (verified.first, verified.next, verified.target_next) == (0, COUNT, COUNT)
    assert progress.passed({0: Place(0, 0)}) == COUNT


@pytest.mark.parametrize("seed", range(10))
def test_a_planted_difference_is_named_and_nothing_before_it_is_read(seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311
    batches, kind, at = whole(), dice.choice(list(FindingKind)), dice.randrange(10, 250)
    within = dice.randrange(1, SIZE - 1)
    hit, offset = batches[at], at * SIZE + within
    if kind is FindingKind.MISSING:
        del hit[within]
    elif kind is FindingKind.REPEATED:
        hit.insert(within, hit[within - 1])
        offset -= 1
    elif kind is FindingKind.ALTERED:
        hit[within] = (hit[within][0], b"other", *hit[within][2:])
    elif kind is FindingKind.FOREIGN:
        hit.insert(within, content(99_999))
        offset = -1
    else:
        batches[at + 3].append(hit.pop(within))
    topic = Topic(batches)
    progress = topic.matched()
    expected = [] if kind is FindingKind.REPEATED else [(kind.value, offset)]
    assert findings(progress) == expected, "at least once, a repeat is none"
    assert progress.places[0].source == COUNT
    ((first, _),) = topic.read
    assert first == at * SIZE, "what precedes it is not read"


def test_a_merged_batch_is_compared_by_records_alone_and_is_no_difference() -> None:
    batches = whole()
    batches[50:54] = [[record for part in batches[50:54] for record in part]]
    topic = Topic(batches)
    progress = topic.matched()
    assert (findings(progress), progress.places[0]) == ([], Place(COUNT, COUNT))
    ((first, reached),) = topic.read
    assert (first, reached >= 54 * SIZE, reached < 60 * SIZE) == (50 * SIZE, True, True)


def test_a_topic_that_is_merged_throughout_is_left_to_the_byte_rate() -> None:
    batches = whole()
    merged = [
        [record for part in batches[at : at + 4] for record in part] for at in range(0, 300, 4)
    ]
    topic = Topic(merged)
    progress = topic.matched()
    assert progress.places[0].source < 1_000
    assert topic.scans <= GAPS + 1


def test_a_lost_end_is_named() -> None:
    topic = Topic(whole()[:-2])
    progress = topic.matched()
    assert findings(progress) == [("missing", n) for n in range(COUNT - 2 * SIZE, COUNT)]


def test_a_failure_of_a_comparison_keeps_what_was_matched() -> None:
    batches = whole()
    del batches[50][3]
    topic = Topic(batches)
    progress = matched(
        {0: Place(0, 0)},
        {0: COUNT},
        scan=topic.scan,
        compare=lambda gaps: (AuditResult("a.b", "orders", "orders", ()), "no leader"),
        late=lambda: False,
        at_ms=1,
    )
    assert (progress.failure, progress.places[0]) == ("no leader", Place(1_000, 1_000))


def test_each_of_some_differences_is_named_unless_it_is_late() -> None:
    batches, hit = whole(), range(10, 290, 30)
    for at in hit:
        batches[at][5] = (b"K", *batches[at][5][1:])
    topic = Topic(batches)
    assert findings(topic.matched()) == [("altered", at * SIZE + 5) for at in hit]
    late = Topic(batches).matched(late=True)
    assert (findings(late), late.places[0]) == ([], Place(10 * SIZE, 10 * SIZE))
