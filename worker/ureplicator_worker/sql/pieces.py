"""Pieces of stored batches: the places of some of their records, read and put together all at once. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ureplicator_worker.batches.records import read_zigzag
from ureplicator_worker.copier.record.decoding import StoredRecords
from ureplicator_worker.records.columns import APPEND_TIME, CREATE_TIME, find_records
from ureplicator_worker.records.varints import Numbers


@dataclass(frozen=True, slots=True)
class Piece:
    """Records of one stored batch: their places in its decoded bytes. Their offsets count from `base`."""

    stored: StoredRecords
    places: list[int]
    base: int

    def part(self, first: int, stop: int) -> Piece:
        return Piece(self.stored, self.places[first:stop], self.base)

    def offset(self, index: int) -> int:
        data = self.stored.data
        _length, at = read_zigzag(data, self.places[index])
        _delta_ms, at = read_zigzag(data, at + 1)
        return self.base + read_zigzag(data, at)[0]


def whole_piece(stored: StoredRecords, position: int) -> Piece | None:
    """All records of a stored batch, without decoding them; None: they must be read one by one.

    Raises CorruptBatch.
    """
    if not stored.contiguous or stored.header.base_offset < position:
        return None
    places: list[int] = []
    find_records(stored.data, 0, stored.header.records, places)
    return Piece(stored, places, stored.header.base_offset)


def joined(pieces: Sequence[Piece]) -> tuple[bytes, Numbers]:
    """The decoded bytes of all stored batches, and where each record begins."""
    data: list[bytes] = []
    places: list[Numbers] = []
    size, start = 0, 0
    before: StoredRecords | None = None
    for piece in pieces:
        if piece.stored is not before:
            before, start = piece.stored, size
            data.append(before.data)
            size += len(before.data)
        places.append(np.asarray(piece.places, np.int64) + start)
    return b"".join(data), np.concatenate(places)


def runs_of(pieces: Sequence[Piece]) -> Numbers:
    """Runs of each piece, as `Fields.places_and_times` takes it."""
    runs = []
    for piece in pieces:
        stored, count = piece.stored, len(piece.places)
        stamped_ms = stored.stamped_ms
        if stamped_ms is None:
            runs.append((count, piece.base, stored.base_ms, -1, CREATE_TIME))
        else:
            runs.append((count, piece.base, stored.base_ms, stamped_ms, APPEND_TIME))
    return np.array(runs, np.int64)
