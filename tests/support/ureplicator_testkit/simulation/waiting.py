"""`intents.update` knows no clock but the real one: for a while it is given the simulation's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import ModuleType
from typing import Any

from ureplicator_common.coordination.edit import update
from ureplicator_testkit.simulation.kernel import Process

UPDATE: Callable[..., None] = update


@contextmanager
def virtual_waiting(process: Process, *modules: ModuleType) -> Iterator[None]:
    """Whoever of those modules waits in `update` lets the world go on meanwhile."""
    wait = partial(process.world.sleep, process)
    ours: Any = partial(UPDATE, clock=process.world, wait=wait)
    before = [(module, vars(module)["update"]) for module in modules]
    for module in modules:
        vars(module)["update"] = ours
    try:
        yield
    finally:
        for module, function in before:
            vars(module)["update"] = function
