"""Exits that signal handlers raise while a process starts, which waits for a JVM otherwise.

A handler runs wherever the main thread is. Python drops what is raised in a finalizer, and prints it with a
traceback. So whoever raises remembers the signal, too, and the process ends once it has started.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def exits_unprinted() -> Iterator[None]:
    """Meanwhile, a SystemExit that Python drops is not printed."""
    former = sys.unraisablehook

    def print_others(unraisable: Any) -> None:
        if unraisable.exc_type is not SystemExit:
            former(unraisable)

    sys.unraisablehook = print_others
    try:
        yield
    finally:
        sys.unraisablehook = former
