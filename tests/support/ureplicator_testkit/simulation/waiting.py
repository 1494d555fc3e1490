"""Virtual clock and waiting for `edit`, which otherwise uses the real ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import ModuleType
from typing import Any

from ureplicator_common.coordination.edit import edit
from ureplicator_testkit.simulation.kernel import Process

EDIT: Callable[..., Any] = edit


@contextmanager
def virtual_waiting(process: Process, *modules: ModuleType) -> Iterator[None]:
    """Let waits take virtual time: while those modules wait in `edit`, the simulation continues."""
    wait = partial(process.world.sleep, process)
    ours: Any = partial(EDIT, clock=process.world, wait=wait)
    before = [(module, vars(module)["edit"]) for module in modules]
    for module in modules:
        vars(module)["edit"] = ours
    try:
        yield
    finally:
        for module, function in before:
            vars(module)["edit"] = function
