"""Progress of the copy: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from ureplicator_testkit.records.topics import QUIET

PLAIN_EVERY_S = 1.0
RATE_OVER_S = 1.0
RESPONSE_TIMEOUT_S = 30


class Ends:
    """Number of records in a topic's partitions of one cluster, polled many times."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        self._wanted = {TopicPartition(topic, number): latest for number in range(partitions)}
        self._last = 0

    def total(self) -> int:
        """The total as of now; the last known number while a partition has no leader."""
        responses = self._admin.list_offsets(dict(self._wanted), request_timeout=RESPONSE_TIMEOUT_S)
        with contextlib.suppress(KafkaException):
            self._last = sum(
                response.result(timeout=RESPONSE_TIMEOUT_S).offset
                for response in responses.values()
            )
        return self._last


@dataclass(frozen=True, slots=True)
class CopyProgress:
    """One measurement of both sides."""

    copied: int
    lag: int
    per_s: float


class Rate:
    """Records per second over the last second: smooth, and still current."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: list[tuple[float, int]] = []

    def at(self, total: int) -> float:
        now = self._clock()
        self._seen.append((now, total))
        while len(self._seen) > 2 and self._seen[1][0] <= now - RATE_OVER_S:
            self._seen.pop(0)
        since, before = self._seen[0]
        return (total - before) / (now - since) if now > since else 0.0


@contextmanager
def shown(console: Console, total: int) -> Iterator[Callable[[CopyProgress], None]]:
    """A function that prints a sample."""
    if not console.is_terminal:
        yield _PlainProgress(console, total).show
        return
    with Progress(
        TextColumn("  {task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f} of {task.total:,.0f}"),
        TextColumn("[cyan]{task.fields[per_s]:>9,.0f} records/s"),
        TextColumn("[yellow]lag {task.fields[lag]:>7,}"),
        TimeElapsedColumn(),
        console=console,
    ) as progress:
        bar = progress.add_task("copying", total=total, per_s=0.0, lag=0)

        def show(sample: CopyProgress) -> None:
            progress.update(bar, completed=sample.copied, lag=sample.lag, per_s=sample.per_s)

        yield show


class _PlainProgress:
    """Lines for a console that is no terminal, at most one per interval."""

    def __init__(self, console: Console, total: int) -> None:
        self._console = console
        self._total = total
        self._shown_at_s = 0.0

    def show(self, sample: CopyProgress) -> None:
        now_s = time.monotonic()
        if now_s - self._shown_at_s < PLAIN_EVERY_S and sample.copied < self._total:
            return
        self._shown_at_s = now_s
        self._console.print(
            f"  copied {sample.copied:,} of {self._total:,}"
            f" ({sample.per_s:,.0f} records/s, lag {sample.lag:,})"
        )
