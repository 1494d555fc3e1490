"""Less is requested, and under way, where the line is slow; the limits follow a line that changes."""

import pytest

from ureplicator_worker.copier.net.line_rate import (
    BUSY_S,
    FIRST_BYTES,
    MIN_BYTES,
    ReceiveRate,
    SendProgress,
)

MOST = 20 << 20


@pytest.mark.parametrize("rate", [50_000, 1_000_000, 20_000_000])
def test_a_response_takes_about_two_seconds(rate: int) -> None:
    line, now_s = ReceiveRate(), 10.0
    assert line.limit_bytes == FIRST_BYTES
    for _ in range(3):
        size = line.limit_bytes
        line.began(now_s)
        now_s += size / rate
        line.ended(size, now_s)
        assert line.limit_bytes == pytest.approx(BUSY_S * rate, rel=0.01)


def test_what_was_there_at_once_limits_nothing() -> None:
    line = ReceiveRate()
    line.began(1.0)
    line.ended(FIRST_BYTES, 1.0)
    assert line.limit_bytes > MOST


def test_a_small_response_measures_nothing() -> None:
    line = ReceiveRate()
    line.began(1.0)
    line.ended(MIN_BYTES - 1, 60.0)
    assert line.limit_bytes == FIRST_BYTES


class Sending:
    """Requests as large as allowed over a line of a rate, and a socket that holds a few bytes."""

    def __init__(self, *, socket_bytes: int = 30_000, think_s: float = 0.0) -> None:
        self.progress = SendProgress()
        self.now_s = 0.0
        self.longest_s = 0.0
        self._socket_bytes = socket_bytes
        self._think_s = think_s

    def request(self, rate: float) -> None:
        """One request, and the response once the broker has thought."""
        progress, began_s = self.progress, self.now_s
        progress.queued += progress.limit_bytes
        taken = float(progress.taken)
        while progress.responded < progress.queued:
            progress.accepted = min(progress.queued, int(taken) + self._socket_bytes)
            progress.observe(
                progress.accepted - int(taken), oldest_end=progress.queued, now_s=self.now_s
            )
            if taken >= progress.queued:
                self.now_s += self._think_s
                progress.on_response(progress.queued, max_bytes=MOST)
            self.now_s += 0.02
            taken = min(taken + 0.02 * rate, progress.accepted)
        self.longest_s = self.now_s - began_s


@pytest.mark.parametrize("rate", [50_000, 1_000_000])
def test_a_request_takes_about_two_seconds(rate: int) -> None:
    sending = Sending()
    for _ in range(12):
        sending.request(rate)
    assert 0.5 * BUSY_S < sending.longest_s < 1.5 * BUSY_S


def test_a_fast_line_limits_nothing_soon() -> None:
    sending = Sending(socket_bytes=MOST)
    for _ in range(7):
        sending.request(1e9)
    assert sending.progress.limit_bytes == MOST


def test_the_time_that_a_broker_takes_is_not_the_line_s() -> None:
    sending = Sending(socket_bytes=MOST, think_s=5.0)
    for _ in range(7):
        sending.request(1e9)
    assert sending.progress.limit_bytes == MOST


def test_a_line_that_has_recovered_is_used_again() -> None:
    sending = Sending(socket_bytes=30_000)
    for _ in range(12):
        sending.request(50_000)
    assert sending.progress.limit_bytes < 200_000
    sending = Sending(socket_bytes=MOST)
    sending.progress.limit_bytes = MIN_BYTES
    for _ in range(9):
        sending.request(1e9)
    assert sending.progress.limit_bytes == MOST


def test_bytes_taken_of_the_oldest_request_are_progress() -> None:
    progress = SendProgress()
    progress.queued = progress.accepted = 300
    assert progress.observe(250, oldest_end=100, now_s=0.0)
    assert not progress.observe(250, oldest_end=100, now_s=0.1)
    assert progress.observe(150, oldest_end=100, now_s=0.2)
    assert not progress.observe(0, oldest_end=100, now_s=0.3)
