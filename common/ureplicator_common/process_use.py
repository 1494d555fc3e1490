"""Processor time and memory of processes, from Linux's `/proc`.

The time of a process counts what it ran itself and what its ended children ran (fields 14 to 17 of
`/proc/<pid>/stat`), so that the sum over a living tree only grows. Memory is what is resident; pages that
processes share count in each.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class ProcessUse:
    cpu_s: float = 0.0
    memory_bytes: int = 0

    def __add__(self, other: ProcessUse) -> ProcessUse:
        return ProcessUse(self.cpu_s + other.cpu_s, self.memory_bytes + other.memory_bytes)


def use_of(pid: int, *, ended_children: bool = False) -> ProcessUse:
    """Use of one process; nothing of one that is gone. `ended_children`: their time counts, too."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ProcessUse()
    ticks = fields[11:15] if ended_children else fields[11:13]
    return ProcessUse(sum(map(int, ticks)) / _TICKS_PER_S, int(fields[21]) * _PAGE_BYTES)


def use_of_tree(pid: int) -> ProcessUse:
    """Use of a process with all that it started."""
    own = use_of(pid, ended_children=True)
    return sum(map(use_of_tree, _children(pid)), own)


def _children(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            yield from map(int, task.read_text().split())
        except OSError:  # the thread has ended
            continue
