"""Identity of processes: id and start time, since the system uses a process id again.

Linux gives the start time in clock ticks since boot (field 22 of `/proc/<pid>/stat`). A zombie counts
as gone: it runs no code and holds no socket.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ProcessId:
    pid: int
    started_ticks: int

    @classmethod
    def of(cls, pid: int) -> ProcessId | None:
        """The process that has the id now, or None."""
        fields = _fields(pid)
        return None if fields is None else cls(pid, int(fields[19]))

    def alive(self) -> bool:
        fields = _fields(self.pid)
        if fields is None or fields[0] in "ZX":
            return False
        return int(fields[19]) == self.started_ticks

    def kill(self) -> None:
        """SIGKILL, unless the id is another process's by now; without effect on another user's process."""
        if self.alive():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, signal.SIGKILL)

    def wait_gone(self, timeout_s: float) -> bool:
        """Wait for the end of a process that need not be a child; False if it takes longer."""
        until_s = time.monotonic() + timeout_s
        while self.alive():
            if time.monotonic() >= until_s:
                return False
            time.sleep(0.01)
        return True


def children() -> set[ProcessId]:
    """Processes that this one has started, and that have not ended."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        fields = _fields(int(entry.name))
        if fields is not None and int(fields[1]) == os.getpid() and fields[0] not in "ZX":
            found.add(ProcessId(int(entry.name), int(fields[19])))
    return found


def scratch_folder(prefix: str) -> Path:
    """A temporary folder with the identity of this process in its name. Those of processes that have ended
    without removing theirs are removed."""
    base = Path(tempfile.gettempdir())
    for left in base.glob(f"{prefix}-*"):
        match = re.match(rf"{prefix}-(\d+)-(\d+)-", left.name)
        if match and not ProcessId(int(match[1]), int(match[2])).alive():
            shutil.rmtree(left, ignore_errors=True)
    process = ProcessId.of(os.getpid())
    ticks = process.started_ticks if process else 0
    return Path(tempfile.mkdtemp(prefix=f"{prefix}-{os.getpid()}-{ticks}-", dir=base))


def _fields(pid: int) -> list[str] | None:
    """Fields of `/proc/<pid>/stat` from the third (state) on; the name before may hold anything."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
