"""Identity of processes: id and start time, since the system uses a process id again.

Linux gives the start time in clock ticks since boot (field 22 of `/proc/<pid>/stat`). A zombie counts
as gone: it runs no code and holds no socket.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

LOCK = "in-use"
UNLOCKED_S = 60.0
"""A folder that has no lock for so long was left by a process that ended before it had one."""

_locks: dict[Path, int] = {}
"""Locks of this process's folders: open files, until the folder is gone."""


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
    """A temporary folder of this process. Those of processes that have ended without removing theirs are
    removed, and nothing else whose name begins alike.

    A process holds a lock on a file in its folder. Its id would say nothing to a process in another
    container, which may have the same temporary folder.
    """
    base = Path(tempfile.gettempdir())
    for left in base.glob(f"{prefix}-[0-9]*-*"):
        if not _is_in_use(left):
            shutil.rmtree(left, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{prefix}-{os.getpid()}-", dir=base))
    for gone in [known for known in _locks if not known.exists()]:
        os.close(_locks.pop(gone))
    _locks[folder] = _locked(folder)
    return folder


def _locked(folder: Path) -> int:
    """The file is seen under its name once it is locked."""
    new = folder / f"{LOCK}.new"
    lock = os.open(new, os.O_CREAT | os.O_RDWR, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    new.rename(folder / LOCK)
    return lock


def _is_in_use(folder: Path) -> bool:
    """True also if that cannot be found out, and of one that is just being made."""
    try:
        lock = os.open(folder / LOCK, os.O_RDWR)
    except FileNotFoundError:
        return _age_s(folder) < UNLOCKED_S
    except OSError:
        return True
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(lock)
    return False


def _age_s(folder: Path) -> float:
    try:
        return time.time() - folder.stat().st_mtime
    except OSError:
        return 0.0


def _fields(pid: int) -> list[str] | None:
    """Fields of `/proc/<pid>/stat` from the third (state) on; the name before may hold anything."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
