"""Memory that was freed stays with the process, for the next buffer.

The C library gives blocks of 128 KiB and more back to the kernel when they are freed. Merged batches are as
large, and are built and freed all the time: each came as 64 fresh pages, zeroed by the kernel. Their page
faults took as long as merging itself (1,000-byte records in batches of 16 KB: 31 us a batch with them, 18
without).
"""

from __future__ import annotations

import ctypes

KEPT_BYTES = 16 << 20
"""Freed memory at the end of the heap that is kept."""
MAPPED_BYTES = 2 << 20
"""Blocks from this size on are still the kernel's when they are freed: buffers of responses, which are kept
anyway (`copier.net.buffers`)."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Names of options, from glibc's malloc.h."""


def keep_freed_memory() -> bool:
    """Have this process keep what it frees; False where the C library has no such option (musl)."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_TRIM_THRESHOLD, KEPT_BYTES) and mallopt(_MMAP_THRESHOLD, MAPPED_BYTES))
