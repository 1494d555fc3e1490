"""Silence of another party, by the time in which this process runs."""

from ureplicator_common.clock import SilenceTimer


def observed(timer: SilenceTimer, *, sign_s: float, from_s: float, to_s: float) -> float:
    """One look a second, from `from_s` up to `to_s`."""
    found = 0.0
    for second in range(int(to_s - from_s) + 1):
        found = timer.observe(sign_s, from_s + second)
    return found


def test_silence_grows_with_the_time() -> None:
    timer = SilenceTimer()
    assert observed(timer, sign_s=100.0, from_s=100.0, to_s=160.0) == 60.0


def test_a_sign_of_life_ends_it() -> None:
    timer = SilenceTimer()
    observed(timer, sign_s=100.0, from_s=100.0, to_s=150.0)
    assert timer.observe(150.5, 151.0) == 0.5


def test_minutes_in_which_this_process_was_frozen_do_not_count() -> None:
    timer = SilenceTimer()
    assert observed(timer, sign_s=100.0, from_s=100.0, to_s=105.0) == 5.0
    assert timer.observe(100.0, 285.0) == 6.0
    assert observed(timer, sign_s=100.0, from_s=286.0, to_s=340.0) == 61.0


def test_a_freeze_right_after_a_sign_of_life_does_not_count_either() -> None:
    timer = SilenceTimer()
    assert timer.observe(100.0, 280.0) == 1.0
