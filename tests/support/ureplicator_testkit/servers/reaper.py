"""Clean-up after a killed test run: a process of its own, on the standard library only.

A test runner may itself be killed with SIGKILL, and then no clean-up of its own runs. The kernel's
parent-death signal is no help: it fires when the *thread* that started the child ends, and a child's
own children (a JVM, its Python workers) do not get it at all. So this process waits for the end of
its standard input, which the kernel closes when the runner dies, in whatever way. Every process that
the runner starts, and their descendants, carry one mark in their environment; those that still carry
it then are killed, and the folders announced on standard input are removed.
"""

import contextlib
import os
import shutil
import signal
import sys
import time
from pathlib import Path

SESSION_MARK = "UREPLICATOR_TESTKIT_SESSION"


def marked_processes(mark: str, value: str) -> list[int]:
    """Live processes with this mark, oldest first."""
    wanted = f"{mark}={value}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return sorted(found)


def kill_marked(mark: str, value: str, *, rounds: int = 50) -> list[int]:
    """Kill until none is left: a process may start another one before it is killed."""
    for _ in range(rounds):
        pids = marked_processes(mark, value)
        if not pids:
            return []
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)
    return marked_processes(mark, value)


def main() -> None:
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    folders = [line.rstrip("\n") for line in sys.stdin]
    kill_marked(SESSION_MARK, sys.argv[1])
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
