"""Repeated records of a copy, judged by the commits that the target accepted.

A copier begins at a committed position. So what is repeated begins at a position that a lost writer had
committed, or at the one that it found and had not yet committed beyond: its predecessor's last. A partition
that no lost writer ever held repeats nothing. What a writer sends may also arrive after its successor has
begun: it was frozen and continues where it stopped, or its requests were held up on their way. Then the
repeats need not begin at a position, but lie behind one.

Between two commits lie the records of one interval, or what a new writer found waiting and copied in its
first. A writer that is lost has sent about so many beyond its last commit, twice as many at most: one may
just have been on its way.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from ureplicator_testkit.histories.events import Seen
from ureplicator_testkit.records.commits import CommittedOffset


@dataclass(frozen=True, slots=True)
class Lost:
    """Writers that ended without a last commit. `late`: what they sent may arrive when they are replaced."""

    workers: frozenset[str] = frozenset()
    late: bool = False


NO_LOST_WRITER = Lost()


def lost(*workers: str) -> Lost:
    return Lost(frozenset(workers))


def late(*workers: str) -> Lost:
    return Lost(frozenset(workers), late=True)


@dataclass(frozen=True, slots=True)
class Replay:
    """Consecutive records that the target already had: the first one's source offset, and how many."""

    offset: int
    count: int


def replays(source: Sequence[Seen], target: Sequence[Seen]) -> list[Replay]:
    """Replays in the order of the target's log. What the source does not hold is no repeat.

    A record that the source itself holds twice is no repeat before its third time.
    """
    places: defaultdict[int, list[int]] = defaultdict(list)
    for place, record in enumerate(source):
        places[record.number].append(place)
    found: list[Replay] = []
    times: Counter[int] = Counter()
    follows = -1
    """Continuation of the last record, if it was a repeat."""
    for record in target:
        times[record.number] += 1
        if record.number not in places or times[record.number] <= len(places[record.number]):
            follows = -1
            continue
        place = places[record.number][0]
        if place == follows:
            found[-1] = Replay(found[-1].offset, found[-1].count + 1)
        else:
            found.append(Replay(source[place].offset, 1))
        follows = place + 1
    return found


def unexplained(
    source: Mapping[int, Sequence[Seen]],
    target: Mapping[int, Sequence[Seen]],
    commits: Iterable[CommittedOffset],
    who: Lost,
) -> list[str]:
    """Repeats that the commits and the lost writers do not account for."""
    of: defaultdict[int, list[CommittedOffset]] = defaultdict(list)
    for commit in commits:
        of[commit.partition].append(commit)
    return [
        f"partition {number}: {replay.count} repeated from offset {replay.offset}: {wrong}; "
        f"positions {_owners(of[number])}"
        for number in source
        for replay in replays(source[number], target.get(number, ()))
        if (wrong := _judge(replay, [r.offset for r in source[number]], of[number], who))
    ]


def _judge(
    replay: Replay, offsets: Sequence[int], commits: Sequence[CommittedOffset], who: Lost
) -> str:
    """`offsets` of the source's records; "" if all is well."""
    starts = [_next(offsets, position.offset) for position in _positions(commits, who)]
    if not starts:
        return "no lost writer held it"
    if who.late:
        return "" if replay.offset >= min(starts) else f"before the first position {min(starts)}"
    if replay.offset not in starts:
        return f"not from a position of {sorted(who.workers)}"
    most = 2 * _widest(offsets, commits)
    return "" if replay.count <= most else f"more than {most}, twice what any commit covers"


def _positions(commits: Sequence[CommittedOffset], who: Lost) -> Iterator[CommittedOffset]:
    """Commits of the lost writers, and the last one of each predecessor of theirs: an owner commits
    nothing before it has copied something, unless it finds no position at all. Where owner epochs do not
    follow each other, one between them committed nothing, and may have been such a writer."""
    for commit, later in pairwise([*commits, None]):
        assert commit is not None
        if commit.worker in who.workers or (later and _follows_lost(commit, later, who)):
            yield commit


def _follows_lost(commit: CommittedOffset, later: CommittedOffset, who: Lost) -> bool:
    return bool(who.workers) and (
        later.worker in who.workers or later.owner_epoch > commit.owner_epoch + 1
    )


def _owners(commits: Sequence[CommittedOffset]) -> str:
    """Owners that committed, and from where to where: "w1 (4) 0-120, w2 (5) 130-400"."""
    runs = [
        list(run) for _, run in groupby(commits, lambda commit: (commit.worker, commit.owner_epoch))
    ]
    return ", ".join(
        f"{first.worker} ({first.owner_epoch}) {first.offset}-{last.offset}"
        for first, *_, last in ([run[0], *run] for run in runs)
    )


def _next(offsets: Sequence[int], position: int) -> int:
    """Offset of the first record that is copied from this position."""
    place = bisect_left(offsets, position)
    return offsets[place] if place < len(offsets) else position


def _widest(offsets: Sequence[int], commits: Iterable[CommittedOffset]) -> int:
    """Most records from one commit to the next; a new writer begins at the last one's position."""
    places = [bisect_left(offsets, commit.offset) for commit in commits]
    return max((later - place for place, later in pairwise(places)), default=0)
