"""Logs of a source and its copy for tests of the audit, in memory."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ureplicator_worker.audit.core.comparison import Comparison
from ureplicator_worker.audit.core.pairs import Pairs
from ureplicator_worker.audit.core.pending import Limits
from ureplicator_worker.audit.core.side import Chunk, Content, Side

Placed = tuple[int, Content]
"""A record at its offset."""


def content(number: int, *, keys: int = 50) -> Content:
    headers = ((("h", b"%d" % number), ("h", None)), ())[number % 2]
    return b"k%d" % (number % keys), b"v%d" % number, headers, 1_000 + number


def chunks(log: Sequence[Placed], *, end: int | None = None, size: int = 500) -> Iterator[Chunk]:
    for first in range(0, len(log), size):
        part = log[first : first + size]
        offsets = [offset for offset, _ in part]
        yield Chunk(offsets, [held for _, held in part], offsets[-1] + 1, 100 * len(part))
    if end is not None:
        yield Chunk((), (), end, 0)


def compare(
    source: Sequence[Placed], target: Sequence[Placed], *, required: int | None = None, **more: Any
) -> Comparison:
    """Compare both logs from offset 0 on, up to their ends."""
    end = source[-1][0] + 1 if source else 0
    found = Comparison(
        0,
        Side(chunks(source), 0),
        Side(chunks(target), 0),
        required=end if required is None else required,
        **more,
    )
    while found.step():
        pass
    found.finish()
    return found


@dataclass(frozen=True, slots=True)
class History:
    """History of a topic and its copy, and what an audit is given of it.

    `repeats` is the number of records that the target has again; None where compaction removed some.
    """

    source: tuple[Placed, ...]
    target: tuple[Placed, ...]
    source_start: int
    target_start: int
    required: int
    limits: Limits
    repeats: int | None

    def without(self, content: Content) -> History:
        """The same, had the target never received these records: its log has no holes then."""
        kept = [record for record in self.target if record[1] != content]
        offsets = [offset for offset, _ in self.target]
        contents = [record for _, record in kept]
        return replace(self, target=tuple(zip(offsets, contents, strict=False)))

    def with_foreign(self, content: Content, place: int) -> History:
        """The same, had somebody else written this record to the target before its record number `place`."""
        kept = list(self.target)
        offset = kept[place][0]
        behind = [(at + 1, other) for at, other in kept[place:]]
        return replace(self, target=(*kept[:place], (offset, content), *behind))

    def compare_in_two(self, dice: random.Random) -> tuple[Comparison, Comparison]:
        """The second goes on where the first ends, which was while the topic was copied. Contents are
        unique, and nothing was removed."""
        copied = self.target[: dice.randrange(1, len(self.target))]
        contents = {content for _, content in copied}
        reached = max(offset for offset, content in self.source if content in contents)
        first = self._part(
            copied, (self.source_start, self.target_start), dice.randrange(reached + 1)
        )
        second = self._part(self.target, first.next_offsets, self.required, leading=False)
        return first, second

    def _part(
        self,
        target: Sequence[Placed],
        start: tuple[int, int],
        required: int,
        *,
        leading: bool = True,
    ) -> Comparison:
        before = [placed for placed in self.source if placed[0] < start[0]]
        found = Comparison(
            0,
            Side(chunks([placed for placed in self.source if placed[0] >= start[0]]), start[0]),
            Side(chunks([placed for placed in target if placed[0] >= start[1]]), start[1]),
            required=required,
            leading=leading,
            tail=lambda: chunks(before),
            max_findings=len(target),
        )
        while found.step():
            pass
        found.finish()
        return found

    def compare(self, *, pairs: Pairs | None = None) -> Comparison:
        found = Comparison(
            0,
            Side(chunks(self.source, size=97), self.source_start),
            Side(chunks(self.target, size=89), self.target_start),
            required=self.required,
            limits=self.limits,
            max_findings=len(self.target),
            pairs=pairs,
        )
        while found.step():
            pass
        found.finish()
        return found


@dataclass(frozen=True, slots=True)
class Course:
    """Events to come: transactions and aborts at the source; crashes (at least once), or
    transactions and aborts at the target (exactly once); compaction and retention on either side."""

    records: int = 3_000
    keys: int = 60
    equal_contents: bool = False
    exactly_once: bool = False
    compact_source: bool = False
    compact_target: bool = False
    delete_source: bool = False
    delete_target: bool = False


def history(course: Course, dice: random.Random) -> History:
    source = _source(course, dice)
    reached = dice.randrange(len(source) // 2, len(source) + 1)
    target, repeats = _copied(source[:reached], course, dice)
    required = source[dice.randrange(reached - 20, reached)][0]
    source_start = target_start = 0
    if course.compact_source:
        source = _compacted(source, source[dice.randrange(len(source))][0])
    if course.compact_target:
        target = _compacted(target, target[dice.randrange(len(target))][0])
    if course.delete_source:
        source_start = dice.randrange(required // 2)
        source = [placed for placed in source if placed[0] >= source_start]
    if course.delete_target:
        target_start = dice.randrange(target[-1][0] // 3)
        target = [placed for placed in target if placed[0] >= target_start]
    limits = Limits(
        source_compacted=course.compact_source,
        target_compacted=course.compact_target,
        source_from_start=not course.delete_source,
        target_from_start=not course.delete_target,
    )
    removed = course.compact_source or course.compact_target or course.delete_target
    known = None if removed or course.delete_source else repeats
    return History(
        tuple(source), tuple(target), source_start, target_start, required, limits, known
    )


def _source(course: Course, dice: random.Random) -> list[Placed]:
    """Offsets with holes: markers, and records of aborted transactions."""
    log: list[Placed] = []
    offset = 0
    for number in range(course.records):
        if dice.random() < 0.02:
            offset += dice.choice([1, 1, dice.randrange(2, 30)])
        log.append((offset, _content(number, course, dice)))
        offset += 1
    return log


def _content(number: int, course: Course, dice: random.Random) -> Content:
    key = b"k%d" % dice.randrange(course.keys)
    if dice.random() < 0.1:
        return key, None, (), 1_000 + number  # a tombstone
    if course.equal_contents:
        return key, b"%d" % dice.randrange(3), (), None
    return key, b"v%d" % number, (), 1_000 + number


def _copied(
    source: Sequence[Placed], course: Course, dice: random.Random
) -> tuple[list[Placed], int]:
    """The target's log, and how many of its records are repeats."""
    log: list[Placed] = []
    offset = at = committed = repeats = furthest = 0
    while at < len(source):
        log.append((offset, source[at][1]))
        repeats += at < furthest
        offset, at = offset + 1, at + 1
        furthest = max(furthest, at)
        if dice.random() < 0.02:
            committed = at
            offset += course.exactly_once
        if dice.random() < 0.01:
            if course.exactly_once:  # what was not committed is aborted
                del log[len(log) - (at - committed) :]
                offset += 1
                furthest = committed
            at = committed
    return log, repeats


def _compacted(log: Sequence[Placed], clean_end: int) -> list[Placed]:
    """Compacted records: before `clean_end` the last record of each key is kept, and no tombstone."""
    last = {content[0]: offset for offset, content in log}
    return [
        (offset, content)
        for offset, content in log
        if offset >= clean_end or (last[content[0]] == offset and content[1] is not None)
    ]
