"""Comparison of one partition: two sequences of committed records, side by side.

The usual case is equality: chunks of contents are compared as lists, which costs a fraction of reading
them. Where they differ, both sides are aligned again within windows that grow from `WINDOWS[0]` records to
`WINDOWS[-1]` (`alignment`); the region between is handed to `pending`, which explains it. A long run of
records that were compared before is a repeat after a restart of a copier, and is followed as such.

Windows without a common record: the side whose records are older is passed over, so that a gap of any
length ends where the other side goes on. Memory is bounded by the windows, `side.MAX_BYTES` on each side,
the history, and the records that wait.

The source is compared up to `required`, the committed position. Records behind it may have been copied: they
explain records of the target, and are missing only if the target has a later one. Those behind the target's
end are left to the next comparison. The target's end must be taken *before* the source's, so that each
record of the target can be explained.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from statistics import median

from ureplicator_worker.audit.core.alignment import RUN, Anchor, anchors, meeting
from ureplicator_worker.audit.core.claims import UNCLAIMED, Claim
from ureplicator_worker.audit.core.history import History, Tail
from ureplicator_worker.audit.core.pairs import Pairs
from ureplicator_worker.audit.core.pending import Limits, Pending, Region
from ureplicator_worker.audit.core.side import Content, Side
from ureplicator_worker.audit.result import NO_OFFSET, Finding, FindingKind

WINDOWS = (64, 512, 4_096, 32_768)


class Comparison:
    """`step` until it returns False, or stop earlier when `quiet`; then `finish`."""

    def __init__(
        self,
        partition: int,
        source: Side,
        target: Side,
        *,
        required: int,
        limits: Limits = Limits(),  # noqa: B008  # frozen
        leading: bool = True,
        tail: Tail | None = None,
        max_findings: int = 10_000,
        pairs: Pairs | None = None,
        claim: Claim = UNCLAIMED,
    ) -> None:
        """`leading`: the first records of both sides need not belong together. `pairs`: takes the offsets of
        those that do. `claim`: report those that lie elsewhere; a step ends where it does."""
        self._partition = partition
        self._source, self._target = source, target
        self._required = required
        self._leading = leading
        self._max_findings = max_findings
        self._pairs = pairs
        self._claim = claim
        self._wrong_shift: int | None = None
        self._history = History(tail)
        self._pending = Pending(self._history, limits, self._report)
        self._source_before, self._target_before = source.offset - 1, target.offset - 1
        self.compared = 0
        self.first_offset = NO_OFFSET
        self.counts = dict.fromkeys(FindingKind, 0)
        self.findings: list[Finding] = []

    @property
    def quiet(self) -> bool:
        """Every difference so far is explained: another comparison can go on from both offsets."""
        return self._pending.empty

    @property
    def next_offsets(self) -> tuple[int, int]:
        """Source and target offset at which another comparison goes on."""
        return self._source.offset, self._target.offset

    @property
    def compacted(self) -> int:
        return self._pending.compacted

    def step(self) -> bool:
        """Compare what is ready. False: everything is compared."""
        ready = min(self._source.fill(1), self._target.fill(1))
        if not ready:
            return self._one_side()
        ready = bisect_left(self._source.offsets(ready), self._claim.before) or ready
        ours, theirs = self._source.contents(ready), self._target.contents(ready)
        if ours != theirs:
            pairs = zip(ours, theirs, strict=True)
            ready = next(n for n, (a, b) in enumerate(pairs) if a != b)
        if ready:
            self._equal(ours[:ready])
        else:
            self._difference()
        self._pending.expire(self.compared)
        return True

    def finish(self) -> None:
        self._pending.flush()

    def _equal(self, contents: Sequence[Content]) -> None:
        count = len(contents)
        offsets, copies = self._source.offsets(count), self._target.offsets(count)
        self._accept(offsets, copies, contents)
        self._pass(count, count, offsets[-1], copies[-1])

    def _accept(
        self, offsets: Sequence[int], copies: Sequence[int], contents: Sequence[Content]
    ) -> None:
        if self.first_offset == NO_OFFSET:
            self.first_offset = offsets[0]
            self._pending.oldest_ms = contents[0][3] or 0
        self._leading = False
        self.compared += len(offsets)
        self._history.append(offsets, [hash(content) for content in contents])
        if self._pairs is not None:
            self._pairs.add(offsets, copies)
        if offsets[-1] >= self._claim.since:
            self._look_for_shifts(offsets, copies)

    def _look_for_shifts(self, offsets: Sequence[int], copies: Sequence[int]) -> None:
        """Count records that lie elsewhere than claimed; the first of those in a row with the same shift is a
        finding."""
        shift = self._claim.shift
        if copies == ([offset + shift for offset in offsets] if shift else offsets):
            self._wrong_shift = None
            return
        for offset, copy in zip(offsets, copies, strict=True):
            before, self._wrong_shift = self._wrong_shift, copy - offset
            if self._claim.holds(offset, offset + 1, copy):
                self._wrong_shift = None
            elif self._wrong_shift == before:
                self.counts[FindingKind.SHIFTED] += 1
            else:
                self._report(FindingKind.SHIFTED, offset, copy, "")

    def _pass(self, source: int, target: int, source_before: int, target_before: int) -> None:
        self._source.consume(source)
        self._target.consume(target)
        self._source_before, self._target_before = source_before, target_before

    # Differences.

    def _difference(self) -> None:
        for size in WINDOWS:
            ours, theirs = _prints(self._source, size), _prints(self._target, size)
            met = meeting(ours, theirs)
            if met is not None:
                self._explain(anchors(ours[: met[0]], theirs[: met[1]]), *met)
                return
            if size == WINDOWS[0] and (self._follow_repeats(theirs) or self._ends_repeated(theirs)):
                return
            if self._ends_within(self._source, size) and self._ends_within(self._target, size):
                self._explain(anchors(ours, theirs), len(ours), len(theirs))
                return
        self._pass_over(anchors(ours, theirs), len(ours), len(theirs))

    def _ends_within(self, side: Side, size: int) -> bool:
        return side.ended and side.ready <= size

    def _follow_repeats(self, theirs: Sequence[int]) -> bool:
        """Report records of the target as repeated while they follow each other as they did before."""
        if self._leading or len(theirs) < RUN:
            return False
        index = self._history.find_run(theirs[:RUN])
        if index is None:
            return False
        while self._target.fill(1) and index < self._history.end:
            contents = self._target.contents(WINDOWS[2])
            count = self._history.common(index, [hash(content) for content in contents])
            if not count:
                break
            for number, offset in enumerate(self._target.offsets(count)):
                known = self._history.offset(index + number)
                self._report(FindingKind.REPEATED, known, offset, "")
            last = self._target.offsets(count)[-1]
            self._pass(0, count, self._source_before, last)
            index += count
        return True

    def _ends_repeated(self, theirs: Sequence[int]) -> bool:
        """Pass records of the target that precede a repeat, or are one that its end cuts short.

        Else contents that are frequent would be matched by chance with records of the source that are not
        copied yet.
        """
        if self._leading:
            return False
        ended = self._ends_within(self._target, WINDOWS[0]) and not self._required_within(
            WINDOWS[0]
        )
        for first in range(min(RUN, len(theirs))):
            run = theirs[first : first + RUN]
            if (len(run) == RUN or ended) and self._history.find_run(run) is not None:
                self._explain((), 0, first or len(run))
                return True
        return False

    def _pass_over(self, found: Sequence[Anchor], ours: int, theirs: int) -> None:
        """No run in common: go on behind the last common record, or pass over the older window."""
        if found:
            self._explain(found, found[-1][0] + 1, found[-1][1] + 1)
        elif self._ends_within(self._source, ours):
            self._explain((), 0, theirs)
        elif self._ends_within(self._target, theirs):
            required = self._required_within(ours)
            self._explain((), required, 0 if required else theirs)
        else:
            age = _age(self._source.contents(ours), self._target.contents(theirs))
            self._explain((), ours if age <= 0 else 0, theirs if age >= 0 else 0)

    def _explain(self, found: Sequence[Anchor], ours: int, theirs: int) -> None:
        """Pass so many records: pairs are accepted, the rest waits as one region."""
        if found and self._leading:
            (ours, theirs), found = found[0], ()
        elif theirs == self._target.ready and self._target.ended:
            behind = found[-1][0] + 1 if found else 0
            ours = max(behind, self._required_within(ours))
        offsets, contents = self._source.offsets(ours), self._source.contents(ours)
        copies, copied = self._target.offsets(theirs), self._target.contents(theirs)
        if found:
            self._accept(
                [offsets[a] for a, _ in found],
                [copies[b] for _, b in found],
                [contents[a] for a, _ in found],
            )
        region = self._region_of_next(ours, theirs)
        mine, others = {a for a, _ in found}, {b for _, b in found}
        alone = [n for n in range(ours) if n not in mine]
        region.add(region.missing, [offsets[n] for n in alone], [contents[n] for n in alone])
        alone = [n for n in range(theirs) if n not in others]
        region.add(region.extra, [copies[n] for n in alone], [copied[n] for n in alone])
        self._pending.add(region)

    def _region_of_next(self, ours: int, theirs: int) -> Region:
        """Pass so many records on both sides. The holes are those up to the next record."""
        source_before, target_before = self._source_before, self._target_before
        source_last = [source_before, *self._source.offsets(ours)][-1]
        target_last = [target_before, *self._target.offsets(theirs)][-1]
        self._pass(ours, theirs, source_last, target_last)
        self._source.fill(1)
        self._target.fill(1)
        return Region(
            at=self.compared,
            history_end=self._history.end,
            source_holes=self._source.offset - source_before - 1 - ours,
            target_holes=self._target.offset - target_before - 1 - theirs,
            leading=self._leading,
        )

    def _one_side(self) -> bool:
        """One side has ended. Records of the source that are not required are left."""
        if self._target.ready:
            ahead = min(self._target.ready, WINDOWS[2])
            theirs = [hash(content) for content in self._target.contents(ahead)]
            if not self._follow_repeats(theirs):
                self._explain((), 0, ahead)
            return True
        if self._source.ready and self._source.offset < self._required:
            self._explain((), self._required_within(WINDOWS[2]), 0)
            return True
        return False

    def _required_within(self, count: int) -> int:
        """Records among the next `count` of the source that must have been copied."""
        return bisect_left(self._source.offsets(count), self._required)

    def _report(self, kind: FindingKind, source: int, target: int, detail: str) -> None:
        self.counts[kind] += 1
        if self._pairs is not None and kind is FindingKind.REPEATED and source != NO_OFFSET:
            self._pairs.add([source], [target], repeated=True)
        if len(self.findings) < self._max_findings:
            self.findings.append(Finding(self._partition, kind, source, target, detail))


def _prints(side: Side, count: int) -> list[int]:
    side.fill(count)
    return [hash(content) for content in side.contents(count)]


def _age(ours: Sequence[Content], theirs: Sequence[Content]) -> float:
    """Median time of ours after theirs. Below 0: the source's records are the older ones, or there are
    no times to compare."""
    source, target = (
        [content[3] for content in some if content[3] is not None] for some in (ours, theirs)
    )
    return median(source) - median(target) if source and target else -1
