"""Processes that keep a large fleet look for cyclic garbage seldom."""

from __future__ import annotations

import gc
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ureplicator_common.config.settings import Settings
from ureplicator_common.garbage_collection import THRESHOLDS, collect_seldom
from ureplicator_controller import daemon


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def test_what_is_kept_is_looked_through_seldom() -> None:
    collect_seldom()
    gc.collect(1)  # else the next one may be due, by what was made before
    before = [generation["collections"] for generation in gc.get_stats()]
    kept = [[number] for number in range(200_000)]
    young, middle, old = (
        generation["collections"] - former
        for generation, former in zip(gc.get_stats(), before, strict=True)
    )
    assert young <= len(kept) / THRESHOLDS[0] + 1
    assert (middle, old) == (0, 0)


def test_a_controller_collects_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, int, int]] = []

    class Stub:
        def __init__(self, *_: object, stopping: threading.Event, closing: ExitStack, **__: object):
            pass

        def run(self) -> None:
            seen.append(gc.get_threshold())

    monkeypatch.setattr(daemon, "Controller", Stub)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    assert daemon.run(Settings.model_construct(), id="c1", config=Path("fleet.yaml")) == 0
    assert seen == [THRESHOLDS]
