"""Signals between the driver of an audit and its tasks, while a round runs: files in a folder.

    cancel    made by the driver: tasks end
    N         written by the task of partition N: source offsets that it has passed in this round

Spark itself reports a task at its end only. A task on another machine sees no folder: its progress shows when
its round ends, and the driver ends it through Spark.
"""

from __future__ import annotations

import shutil
import time
import weakref
from pathlib import Path
from typing import Self

from ureplicator_worker.engines.processes import scratch_folder

LOOK_S = 0.1
SHOW_S = 0.25
_CANCEL = "cancel"


class Cancelled(Exception):
    """The task is to end."""


class TaskSignals:
    """The side of a task. `folder`: "" for a task that nobody can cancel. For one thread."""

    def __init__(self, folder: str, partition: int) -> None:
        self._folder = Path(folder) if folder else None
        self._partition = partition
        self._looked_s = self._shown_s = float("-inf")

    def check(self) -> None:
        """Raises Cancelled."""
        now_s = time.monotonic()
        if self._folder and now_s - self._looked_s >= LOOK_S:
            self._looked_s = now_s
            if (self._folder / _CANCEL).exists():
                raise Cancelled

    def sleep(self, seconds: float) -> None:
        """Sleep in pieces. Raises Cancelled, also before the end of the sleep."""
        until_s = time.monotonic() + seconds
        while (left_s := until_s - time.monotonic()) > 0:
            time.sleep(min(left_s, LOOK_S))
            self.check()

    def show(self, passed: int) -> None:
        """Source offsets that were passed in this round."""
        now_s = time.monotonic()
        if self._folder and now_s - self._shown_s >= SHOW_S:
            self._shown_s = now_s
            (self._folder / str(self._partition)).write_text(str(passed))


class DriverSignals:
    """The side of the driver. The folder is removed when the process ends, too, whatever thread uses it; that
    of a killed process by the next one."""

    def __init__(self) -> None:
        scratch = scratch_folder("ureplicator-audit")
        self._folder = scratch / "signals"
        self._folder.mkdir()
        self._remove = weakref.finalize(self, shutil.rmtree, scratch, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._remove()

    @property
    def folder(self) -> str:
        return str(self._folder)

    def cancel(self) -> None:
        (self._folder / _CANCEL).touch()

    def passed(self) -> int:
        """Source offsets that the tasks have passed in this round."""
        return sum(_number(path) for path in self._folder.iterdir() if path.name != _CANCEL)

    def begin_round(self) -> None:
        for path in self._folder.iterdir():
            path.unlink()


def _number(path: Path) -> int:
    """0 for a file that is just being written."""
    text = path.read_text()
    return int(text) if text else 0
