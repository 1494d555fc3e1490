"""Processor time and memory of process trees, read from /proc, and quantiles of measurements.

The processor time of a tree is that of its live processes and of their ended children; so a child's
time is counted whether or not it has ended.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Self

from ureplicator_testkit.servers.processes import Process

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
SAMPLE_EVERY_S = 0.5


def cpu_s(processes: Iterable[Process]) -> float:
    """Processor time in seconds that the trees of these processes have used."""
    return sum(_cpu_s(pid) for process in processes for pid in process.tree())


class OwnTimes:
    """Processor time of a tree whose processes come and go: the last that was seen of each.

    Linux adds the time of a process that has ended to its parent only if the parent waits for it.
    """

    def __init__(self, process: Process) -> None:
        self._process = process
        self._seen: dict[int, float] = {}

    def see(self) -> float:
        """Sum in seconds, with what is seen now."""
        for pid in self._process.tree():
            with contextlib.suppress(OSError):
                self._seen[pid] = sum(_times(pid)[:2]) / _TICKS_PER_S
        return sum(self._seen.values())


def others_cpu_s(known_s: float) -> float:
    """Processor time of programs that are neither ours nor in `known_s`."""
    return _machine_cpu_s() - known_s - sum(os.times()[:4])


def share(used_s: float, seconds: float) -> float:
    """Share of the whole machine."""
    return max(used_s, 0.0) / (seconds * (os.cpu_count() or 1))


def quantile(ordered: Sequence[float], part: float) -> float:
    """Quantile of values in ascending order, at least one; `part` from 0 to 1."""
    return ordered[min(int(len(ordered) * part), len(ordered) - 1)]


def _machine_cpu_s() -> float:
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    user, nice, system, _idle, _iowait, *interrupts = map(int, fields[:7])
    return (user + nice + system + sum(interrupts)) / _TICKS_PER_S


def rss_bytes(processes: Iterable[Process]) -> int:
    """Resident memory of the trees now; shared pages count for each process."""
    return sum(_rss_bytes(pid) for process in processes for pid in process.tree())


def peak_rss_bytes(pid: int) -> int:
    """Peak resident memory of one process; 0 if it is gone."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def is_python(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return "python" in Path(f"/proc/{pid}/exe").readlink().name
    return False


def _cpu_s(pid: int) -> float:
    with contextlib.suppress(OSError):
        return sum(_times(pid)) / _TICKS_PER_S
    return 0.0


def _times(pid: int) -> Sequence[int]:
    """Times in user mode, in the kernel, and both of children that were waited for; in ticks (proc(5))."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return [int(field) for field in fields[11:15]]


def _rss_bytes(pid: int) -> int:
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    return 0


class PeakRss:
    """Peak resident memory of some trees while the block runs."""

    def __init__(self, processes: Callable[[], Sequence[Process]]) -> None:
        self._processes = processes
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="memory", daemon=True)
        self.bytes = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(SAMPLE_EVERY_S):
            self.bytes = max(self.bytes, rss_bytes(self._processes()))
