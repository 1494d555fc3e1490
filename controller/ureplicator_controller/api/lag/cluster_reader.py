"""A reader of one cluster, and the thread it belongs to: others ask, and need not wait for the answer.

A reader talks over sockets of its own, one request at a time. Who owes an answer is asked nothing more,
so a cluster that does not answer costs one thread and no queue.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any, Generic, Protocol, TypeVar

from ureplicator_common.clock import Clock
from ureplicator_common.errors import OperatingError
from ureplicator_common.kafka import ClusterUnavailable

IDLE_S = 300.0
"""Brokers close a connection after ten minutes without a word: a new one is made before that."""


class Closing(Protocol):
    def close(self) -> None: ...


R = TypeVar("R", bound=Closing)
T = TypeVar("T")


class ClusterReader(Generic[R]):
    """The reader is made at first use, by `connect`, and anew after a long pause."""

    def __init__(self, connect: Callable[[], R], *, name: str, clock: Clock) -> None:
        self._connect = connect
        self._clock = clock
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
        self._owed: Future[Any] | None = None
        self._reader: R | None = None
        self._used_at_s = 0.0

    def ask(self, question: Callable[[R], T]) -> Future[T]:
        """Raises ClusterUnavailable while a former answer is still owed."""
        if self._owed is not None and not self._owed.done():
            raise ClusterUnavailable("still no answer")
        answer = self._thread.submit(lambda: question(self._open()))
        self._owed = answer
        return answer

    def close(self) -> None:
        """After the answer that is owed, if any; nobody waits for that."""
        self._thread.submit(self._drop)
        self._thread.shutdown(wait=False)

    def _open(self) -> R:
        now_s = self._clock.monotonic_s()
        if now_s - self._used_at_s > IDLE_S:
            self._drop()
        self._used_at_s = now_s
        if self._reader is None:
            self._reader = self._connect()
        return self._reader

    def _drop(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None


def query_all(
    readers: Mapping[str, ClusterReader[R]],
    questions: Mapping[str, Callable[[R], T]],
    *,
    patience_s: float,
) -> dict[str, T | OperatingError]:
    """Ask all at the same time; each answer, or why there is none."""
    asked: dict[str, Future[T]] = {}
    answers: dict[str, T | OperatingError] = {}
    for name, question in questions.items():
        try:
            asked[name] = readers[name].ask(question)
        except OperatingError as error:
            answers[name] = error
    for name, answer in asked.items():
        try:
            answers[name] = answer.result(timeout=patience_s)
        except OperatingError as error:
            answers[name] = error
        except FutureTimeout:
            answers[name] = ClusterUnavailable(f"no answer within {patience_s:g} s")
    return answers
