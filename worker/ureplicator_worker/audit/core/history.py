"""Fingerprints of the last records that were compared, in which repeats are found.

After a crash of a copier the target repeats what followed the last commit, up to a second at full speed.
A million records cover that; 16 bytes are kept for each. A fingerprint is Python's hash of the contents:
keyed and 64 bits wide, but of this process only, so that a history is never stored. What came before the
first record of this process is loaded when a record is not found (`tail`).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterable, Sequence

from ureplicator_worker.audit.core.side import Chunk

SIZE = 1 << 20
_WIDTH = 8
_FEW = 8
"""Records that are searched for one by one; more are looked up in one pass."""

Tail = Callable[[], Iterable[Chunk]]


class History:
    """Indexes are of records in the order they were compared; negative for those of the tail."""

    def __init__(self, tail: Tail | None = None, *, size: int = SIZE) -> None:
        self._tail = tail
        self._size = size
        self._prints = bytearray()
        self._offsets = array("q")
        self._dropped = 0

    @property
    def end(self) -> int:
        """Index behind the last record. Indexes stay the same when old records are dropped."""
        return self._dropped + len(self._offsets)

    def append(self, offsets: Sequence[int], fingerprints: Sequence[int]) -> None:
        self._prints += array("q", fingerprints).tobytes()
        self._offsets.extend(offsets)
        surplus = len(self._offsets) - self._size
        if surplus > self._size // 4:
            del self._prints[: surplus * _WIDTH]
            del self._offsets[:surplus]
            self._dropped += surplus

    def find_run(self, fingerprints: Sequence[int]) -> int | None:
        """Index of the last place where these follow each other."""
        index = self._find(fingerprints, 0)
        if index is None and self._load():
            index = self._find(fingerprints, 0)
        return index

    def find(self, fingerprints: Collection[int], *, since: int | None = None) -> dict[int, int]:
        """Fingerprint -> source offset of its last record, for those that are known; only of records
        `since` an index, without what came before this process."""
        if since is not None:
            return self._each(fingerprints, max(0, since - self._dropped))
        found = self._each(fingerprints, 0)
        if len(found) < len(fingerprints) and self._load():
            found = self._each(fingerprints, 0)
        return found

    def offset(self, index: int) -> int:
        return self._offsets[index - self._dropped]

    def common(self, index: int, fingerprints: Sequence[int]) -> int:
        """Length of the common run of the history from `index` on and these."""
        first = (index - self._dropped) * _WIDTH
        known = array("q", bytes(self._prints[first : first + len(fingerprints) * _WIDTH]))
        pairs = enumerate(zip(known, fingerprints, strict=False))
        shorter = min(len(known), len(fingerprints))
        return next((n for n, (a, b) in pairs if a != b), shorter)

    def _each(self, fingerprints: Collection[int], start: int) -> dict[int, int]:
        if len(fingerprints) > _FEW:
            known = array("q", bytes(self._prints[start * _WIDTH :]))
            pairs = zip(known, self._offsets[start:], strict=True)
            wanted = frozenset(fingerprints)
            return {fingerprint: offset for fingerprint, offset in pairs if fingerprint in wanted}
        found = {fingerprint: self._find([fingerprint], start) for fingerprint in fingerprints}
        return {
            fingerprint: self.offset(index)
            for fingerprint, index in found.items()
            if index is not None
        }

    def _find(self, fingerprints: Sequence[int], start: int) -> int | None:
        pattern = array("q", fingerprints).tobytes()
        end = len(self._prints)
        while True:
            place = self._prints.rfind(pattern, start * _WIDTH, end)
            if place < 0:
                return None
            if place % _WIDTH == 0:
                return self._dropped + place // _WIDTH
            end = place + len(pattern) - 1

    def _load(self) -> bool:
        """Put the tail before all that is known."""
        if self._tail is None:
            return False
        chunks, self._tail = self._tail(), None
        prints, offsets = bytearray(), array("q")
        for chunk in chunks:
            prints += array("q", [hash(content) for content in chunk.contents]).tobytes()
            offsets.extend(chunk.offsets)
        self._dropped -= len(offsets)
        self._prints = prints + self._prints
        self._offsets = offsets + self._offsets
        return True
