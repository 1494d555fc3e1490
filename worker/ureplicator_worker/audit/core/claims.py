"""Claims of positions about the offsets of copies, of partitions that shall have those of the source.

Records of the source from `since` to before `before` lie at the target `shift` higher. A claim is about the
past, so it stays true whatever is copied later: where a takeover shifts what follows, later positions have
another claim, which begins there. Nothing keeps the claims before `since`: offsets there are not compared.
"""

from __future__ import annotations

from typing import NamedTuple

from ureplicator_common.kafka import Position
from ureplicator_common.kafka.provenance import Provenance

_ENDLESS = 1 << 63


class Claim(NamedTuple):
    """`before`: the position that makes it; it says nothing about later records."""

    since: int
    shift: int
    before: int

    def holds(self, first: int, next_offset: int, target: int) -> bool:
        """False if records of the source that follow each other, with their copies from `target` on, do not
        lie where they are claimed to."""
        unclaimed = next_offset <= self.since or first >= self.before
        return unclaimed or target - first == self.shift


UNCLAIMED = Claim(_ENDLESS, 0, _ENDLESS)
SAME = Claim(0, 0, _ENDLESS)
"""Every record has its source offset, also behind the position."""


def claim_of(position: Position | None) -> Claim:
    known = Provenance.decode(position.metadata) if position is not None else None
    if position is None or known is None or known.same is None:
        return UNCLAIMED
    return Claim(known.same.since, known.same.shift, position.offset)
