"""Things that the tests of a folder share: started once, and ended once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ureplicator_testkit.shared import Shared


def test_it_is_started_by_the_first_ended_and_started_anew() -> None:
    happened: list[str] = []

    @contextmanager
    def broker() -> Iterator[int]:
        happened.append("start")
        yield len(happened)
        happened.append("end")

    shared = Shared()
    assert (shared.get(broker), shared.get(broker)) == (1, 1)
    shared.end()
    assert happened == ["start", "end"]
    assert shared.get(broker) == 3
    shared.end()
    shared.end()
    assert happened == ["start", "end", "start", "end"]
