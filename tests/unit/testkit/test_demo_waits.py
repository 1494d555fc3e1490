"""Waits of `scripts/demo` on a machine that is slow."""

from io import StringIO

import pytest
from rich.console import Console

from ureplicator_demo.waiting import TELL_S, await_none_missing
from ureplicator_testkit.control.manual_clock import ManualClock
from ureplicator_testkit.servers.processes import NotInTimeError, deadline_factor

DEADLINE_S = 90.0


def waited(seconds: float) -> str:
    """Text printed while that which is waited for takes so long."""
    clock, printed = ManualClock(start_s=0.0), StringIO()
    await_none_missing(
        lambda: "a [leader] of /fleet" if clock.monotonic_s() < seconds else "",
        DEADLINE_S,
        console=Console(file=printed),
        clock=clock.monotonic_s,
        sleep=clock.advance,
    )
    return printed.getvalue()


def test_a_short_wait_says_nothing() -> None:
    assert waited(TELL_S / 2) == ""


def test_a_long_wait_says_again_and_again_what_it_is_for() -> None:
    assert waited(2.5 * TELL_S) == 2 * "  waits for a [leader] of /fleet\n"


def test_a_wait_that_is_too_long_ends_with_what_is_missing() -> None:
    with pytest.raises(NotInTimeError, match=r"not within 90 s: a \[leader\] of /fleet"):
        waited(2 * DEADLINE_S * deadline_factor())
