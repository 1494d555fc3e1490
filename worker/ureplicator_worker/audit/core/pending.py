"""Records that are on one side only, until it is clear why.

A record that is missing in one place may come later, and one that is too much may be missing later: then it
is reordered. So records wait, by the region in which both sides differed, while `AGE` more records are
compared. Then a region is resolved, in this order:

1. an extra record that was compared before, or meanwhile, is *repeated*;
2. the log of a compacted topic has holes. As many records as offsets are missing in the region of the one
   log, and only records with keys, may be extra in the other: they are counted as *compacted*, and are no
   difference. A target that never had a record has no hole in its place;
3. a missing and an extra record of the region that share parts are one record, *altered*;
4. the rest is *missing* or *foreign*.

Where the source is compacted, an extra record without a hole waits a second time. A region may begin within
records that a copier repeats: then the hole of its first records is in a later region, and what was found
there makes them *repeated*. Or the hole is in another region, whose first copies the target has removed: so
the rest of a region *with repeats*, or before the first record that both have, may use holes left over.

A target may also repeat records that the source has deleted since, and whose first copies the target has
deleted: older records than the first that both sides have are counted, no differences, if the source had
records before the range.

Before the first record that both sides have (`leading`), records of the target may be older than the
range, and records of the source may have been deleted at the target, or never copied: `Limits` tells
which of them are no differences.

A target that repeats records and is compacted afterwards keeps the last of each: it looks reordered, but
has a hole in the first place. Such a record counts as compacted, too.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from ureplicator_worker.audit.core.history import History
from ureplicator_worker.audit.core.side import Content
from ureplicator_worker.audit.result import NO_OFFSET, FindingKind

AGE = 100_000
MAX_WAITING = 200_000
PARTS = ("key", "value", "headers", "timestamp")
_LIKENESSES = [*combinations(range(4), 3), (0, 3), (1,), (3,)]
"""Parts that a record and its altered copy share, the surest first."""

Report = Callable[[FindingKind, int, int, str], None]
"""Kind, source offset, target offset, detail."""


@dataclass(frozen=True, slots=True)
class Limits:
    """`source_from_start`, `target_from_start`: leading records that are on one side only are
    differences."""

    source_compacted: bool = False
    target_compacted: bool = False
    source_from_start: bool = True
    target_from_start: bool = True


@dataclass(slots=True, eq=False)
class Entry:
    """`parts` are fingerprints of key, value and headers, and the timestamp; 0 for an empty one."""

    offset: int
    print: int
    parts: tuple[int, ...]
    region: Region
    waiting: bool = True

    @property
    def has_key(self) -> bool:
        return self.parts[0] != 0


@dataclass(slots=True, eq=False)
class Region:
    """`source_holes`, `target_holes`: offsets without a record in either log. `at`: records compared before;
    `history_end`: end of the history then. `repeats`: its records that are repeats, first
    copies removed or not. `resolved`: only extra records are left, and wait a second time."""

    at: int
    history_end: int
    source_holes: int
    target_holes: int
    leading: bool
    repeats: int = 0
    resolved: bool = False
    missing: list[Entry] = field(default_factory=list)
    extra: list[Entry] = field(default_factory=list)

    def add(
        self, entries: list[Entry], offsets: Sequence[int], contents: Sequence[Content]
    ) -> None:
        for offset, content in zip(offsets, contents, strict=True):
            parts = tuple(hash(part) if part else 0 for part in content)
            entries.append(Entry(offset, hash(content), parts, self))


class Pending:
    """`oldest_ms`: timestamp of the first record that both sides have; 0 unknown."""

    def __init__(self, history: History, limits: Limits, report: Report) -> None:
        self._history = history
        self._limits = limits
        self._report = report
        self._missing: dict[int, deque[Entry]] = defaultdict(deque)
        self._extra: dict[int, deque[Entry]] = defaultdict(deque)
        self._regions: deque[Region] = deque()
        self._waiting = 0
        self._source_holes_left = 0
        self.compacted = 0
        self.oldest_ms = 0

    @property
    def empty(self) -> bool:
        return not self._regions

    def add(self, region: Region) -> None:
        if region.leading:
            self._pass_leading(region)
        for entry in region.missing:
            self._pair_or_wait(entry, self._missing, self._extra)
        unknown = {entry.print for entry in region.extra} - self._missing.keys()
        known = self._history.find(unknown)
        for entry in region.extra:
            if not self._is_repeat(entry, known):
                self._pair_or_wait(entry, self._extra, self._missing)
        if any(entry.waiting for entry in (*region.missing, *region.extra)):
            self._regions.append(region)
        while self._waiting > MAX_WAITING:
            self._resolve(self._regions.popleft(), region.at)

    def _pass_leading(self, region: Region) -> None:
        """Pass what one side has before the other begins. They are no differences, but later repeats
        may be of them."""
        if not self._limits.target_from_start:
            offsets = [entry.offset for entry in region.missing]
            self._history.append(offsets, [entry.print for entry in region.missing])
            region.missing = []
        if not self._limits.source_from_start:
            prints = [entry.print for entry in region.extra]
            self._history.append([NO_OFFSET] * len(prints), prints)
            region.extra = []

    def expire(self, at: int) -> None:
        while self._regions and self._regions[0].at + AGE < at:
            self._resolve(self._regions.popleft(), at)

    def flush(self) -> None:
        while self._regions:
            region = self._regions.popleft()
            self._resolve(region, region.at)

    def _pair_or_wait(
        self, entry: Entry, own: dict[int, deque[Entry]], other: dict[int, deque[Entry]]
    ) -> None:
        partner = _take(other, entry.print)
        if partner is None:
            own[entry.print].append(entry)
            self._waiting += 1
            return
        entry.waiting = partner.waiting = False
        self._waiting -= 1
        missing, extra = (entry, partner) if own is self._missing else (partner, entry)
        self._history.append([missing.offset], [missing.print])
        if self._limits.target_compacted and entry.has_key and _use_hole(missing, extra):
            self.compacted += 1
            extra.region.repeats += 1
        else:
            self._report(FindingKind.REORDERED, missing.offset, extra.offset, "")

    def _is_repeat(self, entry: Entry, known: Mapping[int, int]) -> bool:
        if entry.print not in known:
            return False
        entry.waiting = False
        self._repeated(known[entry.print], entry)
        return True

    def _repeated(self, source_offset: int, entry: Entry) -> None:
        entry.region.repeats += 1
        self._report(FindingKind.REPEATED, source_offset, entry.offset, "")

    def _resolve(self, region: Region, at: int) -> None:
        if region.resolved:
            self._resolve_again(region)
            return
        missing = [entry for entry in region.missing if entry.waiting]
        extra = [entry for entry in region.extra if entry.waiting]
        for entries, where in ((missing, self._missing), (extra, self._extra)):
            for entry in entries:
                entry.waiting = False
                _remove(where, entry)
        self._waiting -= len(missing) + len(extra)
        known = self._history.find({entry.print for entry in extra}, since=region.history_end)
        extra = [entry for entry in extra if not self._is_repeat(entry, known)]
        if not self._limits.source_from_start:
            kept = [entry for entry in extra if entry.parts[3] >= self.oldest_ms]
            self.compacted += len(extra) - len(kept)
            extra = kept
        if self._limits.source_compacted:
            self._source_holes_left += max(0, region.source_holes)
            extra = self._removed_at_source(extra, region.source_holes)
        if self._limits.target_compacted:
            missing = self._removed_at_target(missing, region.target_holes)
        self._report_altered(missing, extra)
        self._report_missing(missing)
        if self._limits.source_compacted and extra:
            self._wait_again(region, extra, at)
        else:
            self._report_foreign(extra)

    def _wait_again(self, region: Region, extra: list[Entry], at: int) -> None:
        region.resolved, region.at, region.missing, region.extra = True, at, [], extra
        self._waiting += len(extra)
        self._regions.append(region)

    def _resolve_again(self, region: Region) -> None:
        self._waiting -= len(region.extra)
        known = self._history.find(
            {entry.print for entry in region.extra}, since=region.history_end
        )
        extra = [entry for entry in region.extra if not self._is_repeat(entry, known)]
        if region.repeats or region.leading:
            extra = self._removed_at_source(extra, self._source_holes_left)
        self._report_foreign(extra)

    def _removed_at_source(self, extra: Sequence[Entry], holes: int) -> list[Entry]:
        """The rest. A record that was removed at the source may be repeated at the target."""
        rest: list[Entry] = []
        removed: dict[int, None] = {}
        for entry in extra:
            if entry.print in removed:
                self._repeated(NO_OFFSET, entry)
            elif len(removed) < holes and entry.has_key:
                removed[entry.print] = None
            else:
                rest.append(entry)
        self.compacted += len(removed)
        self._source_holes_left -= len(removed)
        self._history.append([NO_OFFSET] * len(removed), list(removed))
        return rest

    def _removed_at_target(self, missing: Sequence[Entry], holes: int) -> list[Entry]:
        """The rest."""
        with_key = [entry for entry in missing if entry.has_key]
        removed = {id(entry) for entry in with_key[: max(0, holes)]}
        self.compacted += len(removed)
        return [entry for entry in missing if id(entry) not in removed]

    def _report_altered(self, missing: list[Entry], extra: list[Entry]) -> None:
        """Remove them from both lists."""
        for likeness in _LIKENESSES if missing and extra else ():
            for a, b in _alike(missing, extra, likeness):
                parts = [name for n, name in enumerate(PARTS) if a.parts[n] != b.parts[n]]
                self._report(FindingKind.ALTERED, a.offset, b.offset, ",".join(parts))

    def _report_missing(self, missing: Sequence[Entry]) -> None:
        for entry in missing:
            self._report(FindingKind.MISSING, entry.offset, NO_OFFSET, "")

    def _report_foreign(self, extra: Sequence[Entry]) -> None:
        for entry in extra:
            self._report(FindingKind.FOREIGN, NO_OFFSET, entry.offset, "")


def _alike(
    missing: list[Entry], extra: list[Entry], likeness: Sequence[int]
) -> list[tuple[Entry, Entry]]:
    """Pairs that share these parts, not all of them empty; they are removed from both lists."""
    candidates: dict[tuple[int, ...], deque[Entry]] = defaultdict(deque)
    for entry in extra:
        candidates[tuple(entry.parts[n] for n in likeness)].append(entry)
    pairs = []
    for entry in missing:
        shared = tuple(entry.parts[n] for n in likeness)
        if any(shared) and candidates.get(shared):
            pairs.append((entry, candidates[shared].popleft()))
    paired = {id(entry) for pair in pairs for entry in pair}
    missing[:] = [entry for entry in missing if id(entry) not in paired]
    extra[:] = [entry for entry in extra if id(entry) not in paired]
    return pairs


def _take(waiting: dict[int, deque[Entry]], print: int) -> Entry | None:
    if print not in waiting:
        return None
    entry = waiting[print].popleft()
    if not waiting[print]:
        del waiting[print]
    return entry


def _remove(waiting: dict[int, deque[Entry]], entry: Entry) -> None:
    """Entries of one fingerprint leave in the order they came in, but for those that were paired."""
    waiting[entry.print].remove(entry)
    if not waiting[entry.print]:
        del waiting[entry.print]


def _use_hole(*entries: Entry) -> bool:
    for entry in entries:
        if entry.region.target_holes > 0:
            entry.region.target_holes -= 1
            return True
    return False
