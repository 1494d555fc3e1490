"""Records that stay as they are, from stored batches into new ones, all of a batch at once. Pure, hot path.

A record gets another offset delta, mostly another timestamp delta, and so another length. What is behind
them in its encoding stays as it is, and so does the byte of its attributes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from ureplicator_worker.batches.header import CorruptBatch
from ureplicator_worker.batches.offsets import SourceOffsets
from ureplicator_worker.batches.records import INT64, Built
from ureplicator_worker.copier.record.encoding import BATCH_BYTES
from ureplicator_worker.records.columns import Fields
from ureplicator_worker.records.varints import Bytes, Numbers, write_varints
from ureplicator_worker.sql.pieces import Piece, joined, runs_of


def spliced(pieces: Sequence[Piece]) -> Iterator[Built]:
    """New batches of all records of the pieces, in order. Each has the codec of the stored batch that its
    first record came from. Raises CorruptBatch."""
    data, places = joined(pieces)
    fields = Fields(data, places)
    attributes = fields.attributes()
    offsets, times_ms, _kinds = fields.places_and_times(runs_of(pieces))
    starts, ends = fields.rests()
    codecs = np.repeat(
        [piece.stored.header.codec for piece in pieces], [len(piece.places) for piece in pieces]
    )
    view = memoryview(data)
    for first, stop in pairwise(_bounds(ends - starts)):
        part = slice(first, stop)
        rests = [
            view[start:end]
            for start, end in zip(starts[part].tolist(), ends[part].tolist(), strict=True)
        ]
        heads = _heads(attributes[part], times_ms[part], ends[part] - starts[part])
        yield Built.of(
            b"".join([half for pair in zip(heads, rests, strict=True) for half in pair]),
            codec=int(codecs[first]),
            offsets=_source_offsets(offsets[part]),
            records=stop - first,
            times_ms=(int(times_ms[first]), int(times_ms[part].max())),
        )


def _bounds(sizes: Numbers) -> list[int]:
    """Indexes of the records that begin a batch, and the number of all."""
    behind = np.cumsum(sizes)
    bounds = [0]
    while bounds[-1] < len(sizes):
        before = int(behind[bounds[-1] - 1]) if bounds[-1] else 0
        bounds.append(1 + int(np.searchsorted(behind[:-1], before + BATCH_BYTES)))
    return bounds


def _heads(attributes: Bytes, times_ms: Numbers, rests: Numbers) -> Iterator[memoryview]:
    """Bytes before the rests of the records of a batch. Raises CorruptBatch."""
    first_ms = int(times_ms[0])
    for time_ms in (int(times_ms.min()), int(times_ms.max())):
        if not -INT64 <= time_ms - first_ms < INT64:
            raise CorruptBatch(f"a number of a record is {time_ms - first_ms}")
    count = len(times_ms)
    numbers, masks = zip(
        write_varints(times_ms - first_ms), write_varints(np.arange(count)), strict=True
    )
    lengths = 1 + rests + sum(number_mask.sum(axis=1) for number_mask in masks)
    length, length_mask = write_varints(lengths)
    head = np.concatenate((length, attributes[:, None], *numbers), axis=1)
    mask = np.concatenate((length_mask, np.ones((count, 1), np.bool_), *masks), axis=1)
    joined_heads = memoryview(head[mask].tobytes())
    ends = np.cumsum(mask.sum(axis=1)).tolist()
    return (joined_heads[start:end] for start, end in pairwise([0, *ends]))


def _source_offsets(offsets: Numbers) -> SourceOffsets:
    """Runs without holes."""
    begins = np.concatenate(([0], 1 + np.flatnonzero(np.diff(offsets) != 1)))
    return SourceOffsets(tuple(zip(begins.tolist(), offsets[begins].tolist(), strict=True)))
