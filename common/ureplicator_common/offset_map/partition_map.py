"""Map of one partition, from the rows of the topic, and translation by it in both directions.

A partition may have millions of segments. So of a chunk only the `Entry` is kept, with its row while it is
small: owners join those (`adoption`), and most lookups are in the newest. Segments are decoded when an offset
is looked up in their chunk, and `Details` keeps the last ones. Rows that are not kept are read again, by
`Load`.

Translation forward names the last copy of a record. Chunks of one owner rise in the source, those of the next
one may begin before, with what its predecessor sent without a commit. The chunk to begin at, and the one to
end at, are found by the lowest source offset behind, and the highest one before, each place of the log.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from operator import attrgetter
from typing import NamedTuple

from ureplicator_common.offset_map.chunks import NO_PLACE, UNKNOWN, extended, is_large
from ureplicator_common.offset_map.codec import Head, decode_chunk, decode_head
from ureplicator_common.offset_map.segments import MapSegment, Part, cut, joined

DECODED_SEGMENTS = 1 << 18
"""Decoded segments of all partitions: about 50 MiB."""

FEW_SEGMENTS = 8
"""Segments of a chunk that a view may hold by itself: a pass has a view of each partition."""

NOTHING = Part((), rises=True)

Load = Callable[[int, int], bytes]
"""Value of a row again: offset of its batch in the topic, target offset of the chunk."""


class Entry(NamedTuple):
    """A chunk. `at`: see `Load`; `value` None: to be loaded."""

    head: Head
    at: int
    value: bytes | None

    @property
    def target(self) -> int:
        return self.head.target


class Bounds(NamedTuple):
    """Limits of a chunk. `reach`: position and end of the target's log, up to which it holds if it is open;
    `target_end`: offset at the target before which it counts."""

    reach: tuple[int, int] = NO_PLACE
    target_end: int | None = None

    def applied(self, part: Part, *, is_open: bool) -> Part:
        segments = tuple(part.segments)
        if is_open:
            segments = extended(segments, *self.reach)
        if self.target_end is not None and segments[-1].target_end > self.target_end:
            segments = cut(segments, self.target_end)
        return part._replace(segments=segments)


class _Kept(NamedTuple):
    """A decoded chunk, and as it was bounded last: a chunk of thousands of segments is copied for that."""

    entry: Entry
    whole: Part
    bounds: Bounds | None = None
    bounded: Part = NOTHING


class Details:
    """Decoded chunks, those that were asked for last."""

    def __init__(self, most: int = DECODED_SEGMENTS) -> None:
        self._most = most
        self._size = 0
        self._kept: OrderedDict[int, _Kept] = OrderedDict()
        """Parts by the identity of the entry, which is held here."""

    def whole(self, load: Load, entry: Entry) -> Part:
        """All segments of an entry. May raise as `load`, and UnknownMapFormat; so may `bounded`."""
        return self._decoded(load, entry).whole

    def bounded(self, load: Load, entry: Entry, bounds: Bounds) -> Part:
        kept = self._kept.get(id(entry))
        if kept is None or kept.bounds != bounds:
            whole = self._decoded(load, entry).whole
            part = bounds.applied(whole, is_open=entry.head.open)
            self._kept[id(entry)] = kept = _Kept(entry, whole, bounds, part)
        self._kept.move_to_end(id(entry))
        return kept.bounded

    def _decoded(self, load: Load, entry: Entry) -> _Kept:
        kept = self._kept.get(id(entry))
        if kept is not None:
            self._kept.move_to_end(id(entry))
            return kept
        value = load(entry.at, entry.target) if entry.value is None else entry.value
        part = Part.of(decode_chunk(value).segments)
        kept = self._kept[id(entry)] = _Kept(entry, part)
        self._size += len(part.segments)
        while self._size > self._most and len(self._kept) > 1:
            _, old = self._kept.popitem(last=False)
            self._size -= len(old.whole.segments)
        return kept


def nothing_to_load(at: int, target: int) -> bytes:
    raise AssertionError(f"the row of chunk {target} was not kept")


class PartitionMap:
    """Map of one partition, from the rows of the topic in their order.

    `keys`: target offsets of all chunks that the topic holds, also of those that count no more. Without
    `load` every row is kept.
    """

    __slots__ = ("_details", "_entries", "_load", "keys")

    def __init__(self, load: Load | None = None, details: Details | None = None) -> None:
        self.keys: set[int] = set()
        self._entries: list[Entry] = []
        self._load = load
        self._details = details or Details()

    def __bool__(self) -> bool:
        return bool(self.keys)

    @property
    def entries(self) -> Sequence[Entry]:
        """Chunks that count, in the order of the target's log."""
        return self._entries

    def add(self, value: bytes, *, at: int = 0) -> None:
        """A row. One of a recreated topic ends what was known of the former one. Raises UnknownMapFormat."""
        head = decode_head(value)
        if head.topics == self.topics:
            head = head._replace(topics=self.topics)  # the same strings for all
        is_kept = self._load is None or not is_large(head.size)
        entry = Entry(head, at, value if is_kept else None)
        self.keys.add(entry.target)
        if self.topics != head.topics:
            self._entries = []
        place = self._place(entry.target)
        is_there = place < len(self._entries) and self._entries[place].target == entry.target
        stop = place + is_there if head.level else len(self._entries)
        self._entries[place:stop] = [entry]

    def remove(self, target: int) -> None:
        """A tombstone."""
        self.keys.discard(target)
        place = self._place(target)
        if place < len(self._entries) and self._entries[place].target == target:
            del self._entries[place]

    def _place(self, target: int) -> int:
        return bisect_left(self._entries, target, key=attrgetter("target"))

    @property
    def topics(self) -> tuple[str, str]:
        """Ids of the source's and the target's topic."""
        return self._entries[-1].head.topics if self._entries else ("", "")

    @property
    def newest(self) -> int:
        """Target offset of the newest segment; -1 without one."""
        if not self._entries:
            return UNKNOWN
        part = self._details.whole(self._load or nothing_to_load, self._entries[-1])
        return part.segments[-1].target

    def view(
        self, position: int = UNKNOWN, target_end: int = UNKNOWN, *, mapped: int = UNKNOWN
    ) -> MapView:
        """The map, its open segment up to a committed position; without one, up to where it was known to
        reach when it was written.

        `target_end`, `mapped`: of the position's metadata. A position that was committed with another segment
        changes nothing.
        """
        is_named = position >= 0 and self.newest == mapped
        read = partial(self._details.bounded, self._load or nothing_to_load)
        return MapView(tuple(self._entries), read, (position, target_end) if is_named else NO_PLACE)


class MapView:
    """Translation by the map as it is read. `end`: position and end of the target's log, up to which the last
    chunk holds if it is open. Each call may raise as `Load`, and UnknownMapFormat."""

    def __init__(
        self,
        entries: Sequence[Entry] = (),
        read: Callable[[Entry, Bounds], Part] = lambda entry, bounds: NOTHING,
        end: tuple[int, int] = NO_PLACE,
    ) -> None:
        self._entries = entries
        self._read = read
        self._held: tuple[int, Part] = (-1, NOTHING)
        """The chunk that was looked up last, if it has few segments."""
        heads = [entry.head for entry in entries]
        self._bounds = [Bounds(behind.begin, behind.target) for behind in heads[1:]] + [Bounds(end)]
        highs = [
            max(head.high, bounds.reach[0]) if head.open else head.high
            for head, bounds in zip(heads, self._bounds, strict=False)
        ]
        self._highest = list(accumulate(highs, max))
        """Highest offset of this chunk and of all before it."""
        self._lowest = list(accumulate((head.low for head in reversed(heads)), min))[::-1]
        """Lowest offset of this chunk and of all behind it."""

    @classmethod
    def of(cls, segments: Sequence[MapSegment]) -> MapView:
        """A view of segments that are known."""
        if not segments:
            return cls()
        low, high = (pick(n for segment in segments for n in segment[:2]) for pick in (min, max))
        head = Head(
            segments[0].target, ("", ""), 0, False, NO_PLACE, UNKNOWN, low, high, len(segments)
        )
        part = Part.of(segments)
        return cls((Entry(head, 0, None),), lambda entry, bounds: part)

    def _part(self, at: int) -> Part:
        """Segments of a chunk, as far as they count before the next one."""
        if self._held[0] == at:
            return self._held[1]
        part = self._read(self._entries[at], self._bounds[at])
        if len(part.segments) <= FEW_SEGMENTS:
            self._held = at, part
        return part

    def _next(self, at: int, part: Part, index: int) -> MapSegment | None:
        """The segment behind one, in the order of the target's log."""
        if index + 1 < len(part.segments):
            return part.segments[index + 1]
        if at + 1 == len(self._entries):
            return None
        last, behind = part.segments[index], self._entries[at + 1].head
        follows = behind.after == last.target_end or self._taken_over_at(at) == last.end
        return self._part(at + 1).segments[0]._replace(follows=follows)

    def _taken_over_at(self, at: int) -> int | None:
        """Position at which the next owner began, if the map was complete up to there. From this position on
        nothing lies before its first record; records of an unknown place may lie before the position."""
        is_open, begin = self._entries[at].head.open, self._bounds[at].reach
        return begin[0] if is_open and begin != NO_PLACE else None

    def forward(self, source_offset: int) -> int | None:
        """Target offset at which a consumer goes on that has read everything before `source_offset`.

        None: it lies before what is known. Where the last copy ends before this offset, and an older one goes
        beyond it, the older one counts: operators may set a position back and forth.
        """
        found: int | None = None
        at = bisect_right(self._lowest, source_offset) - 1
        while at >= 0 and (found is None or self._highest[at] > source_offset):
            if self._entries[at].head.low <= source_offset:
                part = self._part(at)
                index = part.covering(source_offset, ends=found is None)
                first, end, target, *_ = part.segments[index]
                if index >= 0 and source_offset < end:
                    return target + source_offset - first
                if index >= 0 and found is None:
                    found = self._behind(at, part, index, source_offset)
                    if source_offset == end:
                        return found
            at -= 1
        return found

    def _behind(self, at: int, part: Part, index: int, source_offset: int) -> int:
        segment, following = part.segments[index], self._next(at, part, index)
        if following is None or not segment.end <= source_offset <= following.first:
            return segment.target_end
        is_last = index + 1 == len(part.segments)
        begun = self._taken_over_at(at) if is_last else None
        if following.follows or (begun is not None and source_offset >= begun):
            return following.target
        return segment.target_end

    def backward(self, target_offset: int) -> int | None:
        """Source offset at which a consumer goes on that has read everything before `target_offset`.

        None: it lies before what is known. Between several outputs of one record it is the record behind.
        """
        at = bisect_right(self._entries, target_offset, key=attrgetter("target")) - 1
        if at < 0:
            return None
        part = self._part(at)
        index = bisect_right(part.segments, target_offset, key=attrgetter("target")) - 1
        first, end, target, *_ = part.segments[index]
        if target_offset < target + end - first:
            return first + target_offset - target
        following = self._next(at, part, index)
        return max(end, following.first) if following and following.follows else end

    @property
    def newest(self) -> MapSegment | None:
        """The last segment, also where several owners have copied it."""
        at, found = len(self._entries) - 1, tuple[MapSegment, ...]()
        while at >= 0 and len(found) < 2:
            segments = self._part(at).segments
            found = joined((segments[-1], *found))
            if len(segments) > 1:
                break
            at -= 1
        return found[-1] if found else None

    def segments(self) -> tuple[MapSegment, ...]:
        """All of them, joined."""
        return joined(self._each())

    def _each(self) -> Iterator[MapSegment]:
        for at in range(len(self._entries)):
            part = self._part(at)
            before = self._part(at - 1) if at else None
            first = self._next(at - 1, before, len(before.segments) - 1) if before else None
            yield first or part.segments[0]
            yield from part.segments[1:]
