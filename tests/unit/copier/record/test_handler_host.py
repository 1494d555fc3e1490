"""The process of a handler from inside and from outside: hooks, limits, and a process that is late."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from ureplicator_common.model import HandlerSettings
from ureplicator_testkit.copier.handler_process import MemoryChannel, NoLimit
from ureplicator_testkit.copier.sample_handlers import MODULE
from ureplicator_testkit.kafka.memory_kafka import MemoryKafka
from ureplicator_worker.copier.record.frames import FrameReader, Head
from ureplicator_worker.copier.record.handler_calls import outputs_of
from ureplicator_worker.copier.record.host import Host
from ureplicator_worker.copier.record.process import GRACE_S, START_S, HandlerProcess
from ureplicator_worker.copier.record.time_limit import TICKS_PER_LIMIT, HandlerTimeout, TimeLimit

LIMIT_S = 8.0
TICK_S = LIMIT_S / TICKS_PER_LIMIT


class Hosted:
    """A host, and the frames that it sends. `limits`: memory limits, in the order of calls."""

    def __init__(self, handler: str, args: str = "{}") -> None:
        self.channel = MemoryChannel(MemoryKafka("B", {"t": 1}))
        self.limits: list[int] = []
        limit = NoLimit(1.0, outputs=outputs_of)
        self.host = Host(self.channel, limit_memory=self.limits.append, limit=limit)
        self.receives(handler=handler, args=args, deadLetterTopic="", timeout=1.0, memory=123)

    def receives(self, **head: Any) -> None:
        self.channel.inbox.append((head, memoryview(b"")))

    def sent(self) -> list[Head]:
        reader = FrameReader()
        found = [head for data in self.channel.outbox for head, _ in reader.feed(data)]
        self.channel.outbox.clear()
        return found


def test_hooks_are_called_and_what_they_raise_is_the_result(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    hosted = Hosted(f"{MODULE}:hooks", f'{{"file": "{notes}"}}')
    assert hosted.host.begin()
    for what in ("assign", "release"):
        hosted.receives(do=what, topic="t", partition=3, offset=17)
        hosted.host.step()
    assert notes.read_text().splitlines() == ["assign 3 17", "release 3"]
    assert hosted.sent() == [{"ready": True}, {"done": True}, {"done": True}]
    notes.unlink()
    notes.mkdir()
    hosted.receives(do="release", topic="t", partition=3)
    hosted.host.step()
    (head,) = hosted.sent()
    assert head["failed"].startswith("handler: IsADirectoryError")


@pytest.mark.parametrize(
    ("handler", "raised"),
    [
        ("no_such_package:make", "ModuleNotFoundError: No module named 'no_such_package'"),
        (f"{MODULE}:no_such_factory", "AttributeError: module"),
        (f"{MODULE}:no_handler", "TypeError: the factory returned int, not a Handler"),
        (f"{MODULE}:raises", "RuntimeError: no licence in sample_handlers.py:"),
    ],
)
def test_memory_is_limited_before_the_handler_is_made(handler: str, raised: str) -> None:
    hosted = Hosted(handler)
    assert not hosted.host.begin()
    assert hosted.limits == [123]
    ((name, reason),) = (head.popitem() for head in hosted.sent())
    assert name == "broken"
    assert reason.startswith(f"handler {handler} cannot be made: {raised}")


class Ticking:
    """A call during which the timer ticks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 0.0
        self.limit = TimeLimit(LIMIT_S, outputs=outputs_of)
        monkeypatch.setattr(time, "monotonic", lambda: self.now_s)

    def tick(self, count: int) -> None:
        for _ in range(count):
            self.now_s += TICK_S
            self.limit._tick(0, None)

    def call(self, ticks: int) -> None:
        def handle(record: object) -> tuple[()]:
            self.tick(ticks)
            return ()

        self.limit.call(handle, None)


def test_a_call_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    ticking = Ticking(monkeypatch)
    with pytest.raises(HandlerTimeout, match="did not return in 8 s"):
        ticking.call(TICKS_PER_LIMIT + 1)
    assert ticking.now_s <= LIMIT_S


def test_many_calls_together_may_take_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    ticking = Ticking(monkeypatch)
    assert not ticking.limit.slow
    for _ in range(5):
        ticking.call(TICKS_PER_LIMIT // 2)
        ticking.tick(TICKS_PER_LIMIT)
    assert ticking.limit.slow


def process_at(now_s: float, *, ready: bool) -> HandlerProcess:
    """The handler's process, as if it had been started; `check` needs none."""
    process = HandlerProcess.__new__(HandlerProcess)
    process.settings = HandlerSettings("t", "m:f", timeout_s=LIMIT_S)
    process.ready, process.error, process.awaited = ready, "", set()
    process.begin(now_s)
    return process


@pytest.mark.parametrize(
    ("ready", "limit_s", "did"), [(True, LIMIT_S + GRACE_S, "return"), (False, START_S, "start")]
)
def test_a_process_that_is_late_is_given_up(ready: bool, limit_s: float, did: str) -> None:
    process = process_at(100.0, ready=ready)
    process.check(100.0 + limit_s, busy=True)
    assert not process.error
    process.check(100.1 + limit_s, busy=True)
    assert process.error == f"handler did not {did} in {limit_s:g} s; its process was killed"


def test_a_process_without_work_or_that_waits_for_the_copier_is_not_late() -> None:
    process = process_at(100.0, ready=True)
    process.check(1_000.0, busy=False)
    process.awaited.add("u")
    process.check(2_000.0, busy=True)
    process.awaited.clear()
    process.check(2_001.0, busy=True)
    assert not process.error
