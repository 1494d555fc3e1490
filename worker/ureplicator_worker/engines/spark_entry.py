"""Function of the Spark task: a slot's job maps it over its partition.

It imports nothing of Spark, and names the copier by text, so that the pickled closure is small and
holds no code: the executor must have this package installed, as the driver has.

The input is read to its end first: Spark kills the Python process of a task that leaves input
unread.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterable, Iterator

from ureplicator_worker.lifeline.messages import CopierConfig

COPIER = "ureplicator_worker.copier.task:copy"


def run(entry: str, config: CopierConfig, rows: Iterable[object]) -> Iterator[int]:
    """Copy until stopped; the result is the process id."""
    for _ in rows:
        pass
    load(entry)(config)
    yield os.getpid()


def load(entry: str) -> Callable[[CopierConfig], None]:
    """`module:function` -> the function."""
    module, _, name = entry.partition(":")
    function: Callable[[CopierConfig], None] = getattr(importlib.import_module(module), name)
    return function
