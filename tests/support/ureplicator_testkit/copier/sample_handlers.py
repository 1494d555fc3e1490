"""Handlers that do what a handler may do, and what none should. The copier's tests name them."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ureplicator_worker.handlers import BY_KEY, Handler, Output, Record

MODULE = "ureplicator_testkit.copier.sample_handlers"


class FanOut(Handler):
    """Each record also to other topics, under the partition of its key; keys `none-...` nowhere."""

    def __init__(self, topics: list[str]) -> None:
        self._topics = topics

    def handle(self, record: Record) -> Iterable[Record | Output]:
        if (record.key or b"").startswith(b"none-"):
            return
        yield record
        for topic in self._topics:
            yield record.output(topic=topic, partition=BY_KEY)


def fan_out(topics: list[str]) -> Handler:
    return FanOut(topics)


class Three(Handler):
    """Each record as it is, under the same number of another topic, and in partition 0 of a third."""

    def __init__(self, others: list[str]) -> None:
        self._copy, self._shared = others

    def handle(self, record: Record) -> Iterable[Record | Output]:
        return (
            record,
            record.output(topic=self._copy),
            record.output(topic=self._shared, partition=0),
        )


def three(others: list[str]) -> Handler:
    return Three(others)


class Fails(Handler):
    """Handler that does `what` at the values that match, once the file exists; without a file always."""

    def __init__(self, what: str, at: str, file: str = "") -> None:
        self._what = what
        self._at = re.compile(at.encode())
        self._file = file

    def handle(self, record: Record) -> Any:
        armed = not self._file or Path(self._file).exists()
        if armed and self._at.fullmatch(record.value or b""):
            return self._fail()
        return [record]

    def _fail(self) -> Any:
        match self._what:
            case "raise":
                raise ValueError("no such\ncustomer")
            case "sleep":
                time.sleep(3600)
            case "stuck":
                signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
                time.sleep(3600)
            case "memory":
                return [bytearray(1 << 40)]
            case "die":
                os.kill(os.getpid(), signal.SIGKILL)
            case "topic":
                return [Output(None, b"lost", topic="no-such-topic")]
            case "partition":
                return [Output(None, b"lost", partition=99)]
        return []


def fails(what: str, at: str, file: str = "") -> Handler:
    return Fails(what, at, file)


class Hooks(Handler):
    """Writes down when it is called."""

    def __init__(self, file: str) -> None:
        self._file = Path(file)

    def _note(self, line: str) -> None:
        with self._file.open("a") as lines:
            lines.write(line + "\n")

    def on_assign(self, topic: str, partition: int, offset: int) -> None:
        self._note(f"assign {partition} {offset}")

    def on_release(self, topic: str, partition: int) -> None:
        self._note(f"release {partition}")


def hooks(file: str) -> Handler:
    return Hooks(file)


def no_handler() -> int:
    return 1


def raises() -> Handler:
    raise RuntimeError("no licence")
