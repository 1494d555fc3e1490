"""Memory of the machine that is in use, as it is where brokers have run for hours.

A log is written to memory first. On a virtual machine the first use of a page of memory costs several
times what copying its bytes does, since the host has to provide it, and a host may take back what is free
for a while. Where a broker has run for long no memory is free: its pages are used again. Without this, a
measurement depends on what ran before it more than on what is measured.
"""

from __future__ import annotations

import os
from pathlib import Path

LEFT_BYTES = 3 << 30
"""Memory that stays free, for the processes that are measured."""
_PIECE_BYTES = 4 << 20


def fill(folder: Path) -> None:
    """Read a file of holes, which needs no room on the disk; its pages are the first to be used again."""
    file = folder / "holes"
    with file.open("wb+", buffering=0) as holes:
        holes.truncate(max(0, _available_bytes() - LEFT_BYTES))
        piece = bytearray(_PIECE_BYTES)
        while holes.readinto(piece):
            pass


def _available_bytes() -> int:
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
