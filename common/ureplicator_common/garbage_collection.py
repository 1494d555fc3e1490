"""Python's collector of cyclic garbage, set for processes that keep a large fleet in memory.

Python looks for cycles after every 700 new containers, and through everything that lives once enough of them
are kept. A plan of 100,000 partitions makes half a million containers, beside as many decoded values that
live for hours: half of its time went into looking through them (1.6 s of processor time, 0.8 s with these
thresholds). The values themselves have no cycles; what has, such as a traceback, is few and waits longer.
"""

from __future__ import annotations

import gc

THRESHOLDS = (50_000, 20, 100)
"""New containers, and collections of the younger generation, after which each generation is looked through:
the oldest one after a hundred million new containers, not after 70,000."""


def collect_seldom() -> None:
    """Set the thresholds of this process."""
    gc.set_threshold(*THRESHOLDS)
