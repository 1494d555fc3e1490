"""Exits that are raised while a process starts."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from ureplicator_worker.engines.exits import exits_unprinted


class Raising:
    """Raises when it is collected."""

    def __init__(self, error: type[BaseException]) -> None:
        self._error = error

    def __del__(self) -> None:
        raise self._error


def test_only_an_exit_in_a_finalizer_is_not_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    printed: list[type[BaseException] | None] = []

    def hook(unraisable: Any) -> None:
        printed.append(unraisable.exc_type)

    monkeypatch.setattr(sys, "unraisablehook", hook)
    with exits_unprinted():
        for error in (SystemExit, ValueError):
            Raising(error)
    assert printed == [ValueError]
    assert sys.unraisablehook is hook
