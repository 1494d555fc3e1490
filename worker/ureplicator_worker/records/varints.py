"""Zigzag varints of many records at once. Hot path.

Numbers are written into rows of equal width, with a mask of the bytes that count.

The first bytes of all numbers are read together, then the second bytes of those that go on, and so on: few
numbers of a record have more than two.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ureplicator_worker.batches.header import CorruptBatch

Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]

MAX_SHIFT = 63
"""Ten bytes hold 64 bits."""


def read_varints(data: Bytes, at: Numbers) -> tuple[Numbers, Numbers]:
    """(values, places behind them) of the numbers at these places. Raises CorruptBatch."""
    try:
        left = data[at].astype(np.uint64)
        at = at + 1
        more = np.flatnonzero(left >= 0x80)
        left[more] &= 0x7F
        shift = 7
        while len(more):
            if shift > MAX_SHIFT:
                raise CorruptBatch("a number of a record has no end")
            byte = data[at[more]].astype(np.uint64)
            left[more] |= (byte & 0x7F) << shift
            at[more] += 1
            more = more[byte >= 0x80]
            shift += 7
    except IndexError as error:
        raise CorruptBatch("a record is cut") from error
    return (left >> 1).astype(np.int64) ^ -(left & 1).astype(np.int64), at


def write_varints(values: Numbers) -> tuple[Bytes, npt.NDArray[np.bool_]]:
    """A row of bytes for each number, and which of them count."""
    left = (values.astype(np.uint64) << 1) ^ (values >> 63).astype(np.uint64)
    columns, masks = [], [np.ones(len(values), np.bool_)]
    while True:
        rest = left >> 7
        more = rest > 0
        columns.append((left & 0x7F).astype(np.uint8) | (more.astype(np.uint8) << 7))
        if not more.any():
            return np.stack(columns, axis=1), np.stack(masks, axis=1)
        masks.append(more)
        left = rest
