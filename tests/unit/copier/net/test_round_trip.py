"""A far broker is told from a near one by the shortest of its last responses."""

import pytest

from ureplicator_worker.copier.net.round_trip import FAR_S, FEW_BYTES, KEPT, RoundTrip

NEAR_S = FAR_S / 3


def measured(*took_s: float, under_way_bytes: int = 0) -> RoundTrip:
    line = RoundTrip()
    for time_s in took_s:
        line.began(time_s, under_way_bytes=under_way_bytes)
    return line


def test_a_broker_is_near_until_a_response_has_shown_its_distance() -> None:
    assert not RoundTrip().is_far
    assert measured(2 * FAR_S).is_far


def test_a_busy_broker_nearby_is_not_far() -> None:
    assert not measured(*[5 * FAR_S] * (KEPT - 1), NEAR_S).is_far
    assert not measured(NEAR_S, *[5 * FAR_S] * (KEPT - 1)).is_far


@pytest.mark.parametrize(("before_s", "after_s"), [(NEAR_S, 3 * FAR_S), (3 * FAR_S, NEAR_S)])
def test_a_line_that_changes_is_noticed(before_s: float, after_s: float) -> None:
    line = measured(*[before_s] * KEPT, *[after_s] * KEPT)
    assert line.is_far == (after_s > FAR_S)


def test_requests_behind_many_bytes_show_no_distance() -> None:
    assert measured(FAR_S * 2, under_way_bytes=FEW_BYTES).is_far
    assert not measured(FAR_S * 2, under_way_bytes=FEW_BYTES + 1).is_far
