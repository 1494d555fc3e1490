"""Started programs: each with its log in a file, a mark that identifies its whole tree, and its end.

A process tree is found by an environment variable that every descendant inherits, not by parent
links or process groups: Spark's JVM outlives a killed driver under another parent, and Spark's Python
daemon leaves the group. `reaper.py` uses the same mark when the whole test run is killed.
"""

import contextlib
import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import psutil
import requests

from ureplicator_testkit.servers import reaper

T = TypeVar("T")

SESSION = uuid.uuid4().hex
PROCESS_MARK = "UREPLICATOR_TESTKIT_PROCESS"
STOP_S = 10.0
STOPPED_STATES = frozenset("TtZX")
"""Stopped by a signal or a tracer, or ended (proc(5))."""
POLL_S = 0.05
LONGEST_POLL_S = 0.2
"""Pauses between polls grow up to this: the polls of long waits take a good part of a processor."""
POLL_GROWTH = 1.1

_counter = itertools.count(1)
_guard: subprocess.Popen[bytes] | None = None


class NotInTimeError(AssertionError):
    """A condition was not met before its deadline."""


def deadline_factor() -> float:
    """Factor for every deadline of the testkit on slow machines: UREPLICATOR_DEADLINE_FACTOR."""
    return float(os.environ.get("UREPLICATOR_DEADLINE_FACTOR", "1"))


def is_stopped(pid: int) -> bool:
    """True if no thread of a process runs. A busy machine stops some of them later than others."""
    states = set()
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            states.add(stat.read_text().rpartition(")")[2].split()[0])
    return states <= STOPPED_STATES


def starved_s(*pids: int) -> float:
    """Seconds in which threads of these processes were ready and had no processor (schedstats of Linux, else
    0.0): what other programs on the machine take from a time that is measured."""
    waited_ns = 0
    for stat in itertools.chain(*(Path(f"/proc/{pid}/task").glob("*/schedstat") for pid in pids)):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            waited_ns += int(stat.read_text().split()[1])
    return waited_ns / 1e9


def eventually(
    predicate: Callable[[], T], deadline_s: float, what: str, *, poll_s: float = 0.0
) -> T:
    """Poll until the predicate returns a true value, and return it. `poll_s`: the pause between polls;
    0: pauses that grow."""
    pause_s = poll_s or POLL_S
    end = time.monotonic() + deadline_s * deadline_factor()
    while True:
        response = predicate()
        if response:
            return response
        if time.monotonic() > end:
            raise NotInTimeError(f"not within {deadline_s} s: {what} (last response: {response!r})")
        time.sleep(pause_s)
        if not poll_s:
            pause_s = min(LONGEST_POLL_S, pause_s * POLL_GROWTH)


def wait_for_http(
    url: str, deadline_s: float, *, status: int = 200, process: "Process | None" = None
) -> requests.Response:
    """Poll an address until it responds with this status; fail early when its process ended."""

    def response() -> requests.Response | None:
        if process is not None:
            process.assert_running()
        try:
            response = requests.get(url, timeout=5)
        except requests.RequestException:
            return None
        return response if response.status_code == status else None

    found = eventually(response, deadline_s, f"{url} responds {status}")
    assert found is not None
    return found


def scratch_folder(prefix: str) -> Path:
    """A temporary folder that also goes when this test run is killed; the caller removes it."""
    folder = tempfile.mkdtemp(prefix=f"ureplicator-test-{prefix}-")
    guard = _start_guard()
    assert guard.stdin is not None
    guard.stdin.write(f"{folder}\n".encode())
    guard.stdin.flush()
    return Path(folder)


def _start_guard() -> "subprocess.Popen[bytes]":
    global _guard
    if _guard is None or _guard.poll() is not None:
        _guard = subprocess.Popen(  # noqa: S603
            [sys.executable, "-S", reaper.__file__, SESSION],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
    return _guard


def stop_guard() -> None:
    """Close the reaper's input and wait for it: it kills what is left, which should be nothing."""
    global _guard
    if _guard is not None:
        assert _guard.stdin is not None
        _guard.stdin.close()
        _guard.wait(timeout=30)
        _guard = None


def guard_pid() -> int | None:
    """The reaper itself, excluded from the search for leftovers."""
    return _guard.pid if _guard is not None else None


def leftovers() -> list[str]:
    """Every live process that this test run started, and their descendants."""
    found = []
    for pid in reaper.marked_processes(reaper.SESSION_MARK, SESSION):
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            if process.status() != psutil.STATUS_ZOMBIE:
                found.append(f"{pid}: {' '.join(process.cmdline())[:200]}")
    return found


class Process:
    """One started program: its log, its signals, its end, and its tree."""

    def __init__(
        self,
        name: str,
        argv: Sequence[str | Path],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        detached: bool = False,
    ) -> None:
        """A detached process outlives its starter; all others end with the test run."""
        self.name = name
        self.log = log
        self.disk_full = False
        self.mark = f"{SESSION}.{next(_counter)}"
        marks = {PROCESS_MARK: self.mark}
        if not detached:
            _start_guard()
            marks[reaper.SESSION_MARK] = SESSION
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            self._popen = subprocess.Popen(  # noqa: S603
                [str(part) for part in argv],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {}), **marks},
                cwd=cwd,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def returncode(self) -> int | None:
        return self._popen.poll()

    @property
    def running(self) -> bool:
        return self.returncode is None

    def log_text(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def log_tail(self, lines: int = 20) -> str:
        return "\n".join(self.log_text().splitlines()[-lines:])

    def assert_running(self) -> None:
        if not self.running:
            raise AssertionError(f"{self.name} ended with {self.returncode}:\n{self.log_tail()}")

    def wait_for_line(self, pattern: str, deadline_s: float) -> re.Match[str]:
        """Wait until a line of the log matches; fail at once when the process ends without it."""

        def search() -> re.Match[str] | None:
            running = self.running  # before the search: a last line may come just before the end
            found = re.search(pattern, self.log_text(), re.MULTILINE)
            if found is None and not running:
                self.assert_running()
            return found

        found = eventually(search, deadline_s, f"{self.name} logs {pattern!r}")
        assert found is not None
        return found

    def send(self, number: signal.Signals) -> None:
        """Signal this one process."""
        if self.running:
            os.kill(self.pid, number)

    def send_tree(self, number: signal.Signals) -> None:
        """Signal the process and all that descends from it."""
        for pid in self.tree():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def tree(self) -> list[int]:
        """Ids of this process and all its live descendants."""
        return reaper.marked_processes(PROCESS_MARK, self.mark)

    def pause(self) -> None:
        """Freeze the process and all that descends from it; returns when every thread stands still."""
        self.send_tree(signal.SIGSTOP)
        eventually(lambda: all(map(is_stopped, self.tree())), STOP_S, f"{self.name} stands still")

    def resume(self) -> None:
        self.send_tree(signal.SIGCONT)

    def fill_disk(self) -> None:
        """Let every further write of this one process to a file fail, as on a full disk."""
        self.disk_full = True
        psutil.Process(self.pid).rlimit(psutil.RLIMIT_FSIZE, (0, 0))

    def wait(self, deadline_s: float) -> int:
        """The exit code, once the process has ended."""
        try:
            return self._popen.wait(deadline_s * deadline_factor())
        except subprocess.TimeoutExpired:
            raise NotInTimeError(
                f"{self.name} did not end within {deadline_s} s:\n{self.log_tail()}"
            ) from None

    def terminate(self, deadline_s: float = 30) -> int:
        """Send SIGTERM and return the exit code."""
        self.send(signal.SIGTERM)
        return self.wait(deadline_s)

    def kill_tree(self) -> None:
        """SIGKILL to all of it; returns when nothing of it is left."""
        left = reaper.kill_marked(PROCESS_MARK, self.mark)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(10)
        if left:
            raise AssertionError(f"{self.name}: cannot kill {left}")

    def assert_tree_gone(self, deadline_s: float = 10) -> None:
        """Fail unless the process and all its descendants end within the deadline."""
        eventually(lambda: not self.tree(), deadline_s, f"nothing of {self.name} is left")


def spawn_ureplicator(
    *arguments: str | Path, log: Path, name: str | None = None, env: Mapping[str, str] | None = None
) -> Process:
    """Start `ureplicator ARGUMENTS` with the interpreter of this environment."""
    command = Path(sys.executable).with_name("ureplicator")
    settings = {"PYTHONUNBUFFERED": "1", **(env or {})}
    return Process(
        name or f"ureplicator-{arguments[0]}", [command, *arguments], log=log, env=settings
    )


def remove_folder(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
