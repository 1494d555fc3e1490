"""Delays between attempts."""

from ureplicator_common.backoff import Backoff

DELAYS_S = (0.0, 1.0, 5.0)


def test_delays_grow_with_failures_and_the_last_repeats() -> None:
    backoff = Backoff(DELAYS_S)
    seen = []
    for _ in range(5):
        backoff = backoff.failed()
        seen.append(backoff.delay_s)
    assert seen == [0.0, 1.0, 5.0, 5.0, 5.0]


def test_there_is_no_delay_before_a_failure() -> None:
    assert Backoff((3.0,)).delay_s == 0.0
    assert Backoff((3.0,)).failed().reset().delay_s == 0.0


def test_only_a_long_run_makes_the_next_failure_a_first_one() -> None:
    flapping = Backoff(DELAYS_S).failed().failed()
    assert flapping.recovered(ran_s=9.9, steady_s=10.0).failed().delay_s == 5.0
    assert flapping.recovered(ran_s=10.0, steady_s=10.0).failed().delay_s == 0.0


def test_failures_of_two_kinds_are_counted_together() -> None:
    backoff = Backoff(DELAYS_S).failed().with_delays((2.0, 4.0)).failed()
    assert backoff.delay_s == 4.0
