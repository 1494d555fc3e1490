"""Pauses of a copy against those of plain producers."""

import pytest

from ureplicator_testkit.records.stalls import Pause, Stalls, longest_alone_s


@pytest.mark.parametrize(
    ("pauses", "others", "alone_s"),
    [
        pytest.param([(0.0, 5.0)], [], 5.0, id="no producer paused"),
        pytest.param([(0.0, 5.0)], [(0.0, 5.0)], 0.0, id="one paused as long"),
        pytest.param([(0.0, 9.0)], [(0.0, 4.0), (3.0, 8.0)], 1.0, id="both, one after the other"),
        pytest.param([(0.0, 9.0)], [(3.0, 8.0), (0.0, 4.0)], 1.0, id="in any order"),
        pytest.param([(0.0, 9.0)], [(0.0, 8.0), (1.0, 2.0)], 1.0, id="one within the other"),
        pytest.param([(2.0, 9.0)], [(4.0, 6.0)], 5.0, id="in the middle of the copy's"),
        pytest.param([(2.0, 9.0)], [(10.0, 30.0)], 7.0, id="another moment excuses nothing"),
        pytest.param([(0.0, 1.0), (5.0, 8.0)], [(0.0, 1.0)], 3.0, id="the longest counts"),
        pytest.param([(0.0, 0.4)], [(0.0, 0.4)], 0.4, id="short ones of producers excuse nothing"),
    ],
)
def test_time_of_a_pause_in_which_no_producer_paused(
    pauses: list[Pause], others: list[Pause], alone_s: float
) -> None:
    assert longest_alone_s(pauses, others) == pytest.approx(alone_s)


def test_a_pause_that_has_not_ended_counts() -> None:
    stalls = Stalls(2)
    stalls.begin(10.0)
    stalls.progress(0, 11.0)
    assert stalls.longest_s(14.0) == {0: 3.0, 1: 4.0}
    assert stalls.pauses(0, 14.0) == [(10.0, 11.0), (11.0, 14.0)]
    assert not stalls.all_moved_since(10.5)
