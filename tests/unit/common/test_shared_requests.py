"""Requests of several threads: one at a time, each with all that wait for it."""

from collections.abc import Mapping, Sequence
from threading import Thread

import pytest

from ureplicator_common.shared_requests import SharedRequests


class Sent:
    """Requests as they were sent. `failed`: error of each item that fails; `broken`: of all."""

    def __init__(self, *, max_size: int = 100) -> None:
        self.requests: list[list[str]] = []
        self.failed: dict[str, Exception] = {}
        self.broken: Exception | None = None
        self.shared: SharedRequests[str, str, None] = SharedRequests(self._send, max_size=max_size)

    def _send(self, items: Sequence[str]) -> Mapping[str, Exception]:
        self.requests.append(list(items))
        if self.broken is not None:
            raise self.broken
        return {item: self.failed[item] for item in items if item in self.failed}

    def finish(self, *items: tuple[str, int]) -> None:
        """All are queued before the first is sent, as by threads that come during another request."""
        for queued in [self.shared.queue(key, key, size=size) for key, size in items]:
            self.shared.finish(queued)


def test_what_waits_is_sent_together() -> None:
    sent = Sent()
    sent.finish(("a", 1), ("b", 1), ("c", 1))
    assert sent.requests == [["a", "b", "c"]]


def test_one_item_waits_for_no_other() -> None:
    sent = Sent()
    sent.shared.perform("a", "a", size=1)
    sent.shared.perform("b", "b", size=1)
    assert sent.requests == [["a"], ["b"]]


def test_a_request_is_bounded() -> None:
    """A single item above the limit is a request of its own."""
    sent = Sent(max_size=10)
    sent.finish(("a", 6), ("b", 5), ("c", 4), ("d", 11))
    assert sent.requests == [["a", "c"], ["b"], ["d"]]


def test_the_same_key_twice_is_two_requests() -> None:
    """A broker refuses both items of a request that has the same topic twice."""
    sent = Sent()
    sent.finish(("a", 1), ("a", 1), ("b", 1))
    assert sent.requests == [["a", "b"], ["a"]]


def test_an_item_that_fails_is_an_error_of_its_thread_alone() -> None:
    sent = Sent()
    sent.failed["b"] = ValueError("refused")
    first, second = (sent.shared.queue(key, key, size=1) for key in "ab")
    sent.shared.finish(first)
    with pytest.raises(ValueError, match="refused"):
        sent.shared.finish(second)


def test_a_request_that_fails_is_an_error_of_all_its_threads() -> None:
    sent = Sent()
    sent.broken = ConnectionError("no broker")
    queued = [sent.shared.queue(key, key, size=1) for key in "ab"]
    for request in queued:
        with pytest.raises(ConnectionError):
            sent.shared.finish(request)
    assert sent.requests == [["a", "b"]]
    sent.broken = None
    sent.finish(("c", 1))
    assert sent.requests[-1] == ["c"]


def test_threads_that_come_during_a_request_share_the_next() -> None:
    sent = Sent()
    threads: list[Thread] = []

    def during_the_first(items: Sequence[str]) -> Mapping[str, Exception]:
        if not sent.requests:
            queued = [sent.shared.queue(key, key, size=1) for key in "bc"]
            threads.extend(Thread(target=sent.shared.finish, args=(request,)) for request in queued)
            for thread in threads:
                thread.start()
        return sent._send(items)

    sent.shared._send = during_the_first
    sent.shared.perform("a", "a", size=1)
    for thread in threads:
        thread.join()
    assert sent.requests == [["a"], ["b", "c"]]


def test_each_thread_gets_the_result_of_its_own_item() -> None:
    shared: SharedRequests[str, str, int] = SharedRequests(
        lambda items: {item: len(item) for item in items if item != "none"}, max_size=100
    )
    queued = [shared.queue(key, key, size=1) for key in ("one", "three", "none")]
    assert [shared.finish(item) for item in queued] == [3, 5, None]
