"""Alignment of two windows of fingerprints.

`meeting`: where both sides agree again, by the first `RUN` records in a row that both have. A run is
evidence also where single contents are frequent.

`anchors`: the longest sequence of records that both have in the same order. The n-th occurrence of a
fingerprint on one side belongs to the n-th on the other. Of these pairs the longest increasing subsequence
is taken, by patience sorting: O(n log n), whatever the windows hold. Records that are in their place are
preferred: of three records reversed, the middle one has not moved.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence

RUN = 8
"""Records in a row that are enough to trust an alignment."""

Anchor = tuple[int, int]


def anchors(source: Sequence[int], target: Sequence[int]) -> list[Anchor]:
    """Pairs of indexes, increasing on both sides."""
    in_place = [(n, n) for n, (a, b) in enumerate(zip(source, target, strict=False)) if a == b]
    longest = _longest(_pairs(source, target))
    return in_place if len(in_place) >= len(longest) else longest


def meeting(source: Sequence[int], target: Sequence[int]) -> Anchor | None:
    """The nearest place on both sides from which on `RUN` records are the same."""
    ours, theirs = _runs(source), _runs(target)
    common = ours.keys() & theirs.keys()
    return min(((ours[run], theirs[run]) for run in common), key=sum, default=None)


def _runs(window: Sequence[int]) -> dict[tuple[int, ...], int]:
    """Each run of `RUN` records, with the index of its first occurrence."""
    last = len(window) - RUN
    return {tuple(window[n : n + RUN]): n for n in range(last, -1, -1)}


def _pairs(source: Sequence[int], target: Sequence[int]) -> list[Anchor]:
    places: dict[int, list[int]] = defaultdict(list)
    for index in range(len(target) - 1, -1, -1):
        places[target[index]].append(index)
    return [
        (a, places[fingerprint].pop())
        for a, fingerprint in enumerate(source)
        if places.get(fingerprint)
    ]


def _longest(pairs: Sequence[Anchor]) -> list[Anchor]:
    """Longest subsequence whose target indexes increase; the source indexes do already."""
    tails: list[int] = []
    members: list[int] = []
    before: list[int] = []
    for number, (_, b) in enumerate(pairs):
        place = bisect_left(tails, b)
        before.append(members[place - 1] if place else -1)
        if place == len(tails):
            tails.append(b)
            members.append(number)
        else:
            tails[place], members[place] = b, number
    chain: list[Anchor] = []
    number = members[-1] if members else -1
    while number >= 0:
        chain.append(pairs[number])
        number = before[number]
    return chain[::-1]
