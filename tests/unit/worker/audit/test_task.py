"""A task that is cancelled brings what it had compared up to the last place where all was explained."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Self, cast

import pytest

from ureplicator_common.kafka import Extent
from ureplicator_worker.audit import signals, task
from ureplicator_worker.audit.core.claims import Claim
from ureplicator_worker.audit.core.pending import Limits
from ureplicator_worker.audit.core.side import Chunk, Content
from ureplicator_worker.audit.result import AuditOptions, FindingKind, PartitionRange
from ureplicator_worker.audit.signals import DriverSignals, TaskSignals
from ureplicator_worker.audit.streams import PartitionLog
from ureplicator_worker.audit.task import Outcome, Work, compare_partition, locate

COUNT, LOST = 200, 50
RANGE = PartitionRange(0, COUNT)


SOURCE: Sequence[Content] = [(None, b"%d" % n, (), n) for n in range(COUNT)]
TARGET = [content for n, content in enumerate(SOURCE) if n != LOST]
Before = Callable[[int], None]


class MemoryLog:
    """A log in chunks of 10 records; `before` is called with the first offset of each."""

    def __init__(
        self, contents: Sequence[Content], *, before: Before, signals: TaskSignals
    ) -> None:
        self._contents, self._before, self._signals = contents, before, signals

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to close."""

    def extent(self) -> Extent:
        return Extent(0, len(self._contents))

    def chunks(self, first: int, end: int) -> Iterator[Chunk]:
        for at in range(first, end, 10):
            self._before(at)
            self._signals.check()
            offsets = range(at, min(at + 10, end))
            yield Chunk(offsets, [self._contents[n] for n in offsets], offsets[-1] + 1, 10)
        yield Chunk((), (), max(first, end), 0)


def compared(
    monkeypatch: pytest.MonkeyPatch,
    wanted: PartitionRange,
    *,
    cancelled_at: int = COUNT,
    stop_at_end: bool = False,
) -> Outcome:
    """`cancelled_at`: source offset of the chunk before which the driver cancels."""
    with DriverSignals() as driver:

        def before(offset: int) -> None:
            if offset == cancelled_at:
                driver.cancel()

        def log(
            cluster: object, topic: str, *_: object, signals: TaskSignals, **__: object
        ) -> MemoryLog:
            if topic == "t":
                return MemoryLog(SOURCE, before=before, signals=signals)
            return MemoryLog(TARGET, before=lambda _: None, signals=signals)

        monkeypatch.setattr(task, "PartitionLog", log)
        monkeypatch.setattr(signals, "LOOK_S", 0.0)
        options = AuditOptions(stop_at_end=stop_at_end)
        return compare_partition(
            Work("t", "copy", {}, {}, wanted, options, 0, 10, signals=driver.folder)
        )


@pytest.mark.parametrize("offset", range(10, COUNT, 10))
def test_two_halves_are_as_one_whole(offset: int, monkeypatch: pytest.MonkeyPatch) -> None:
    first = compared(monkeypatch, RANGE, cancelled_at=offset)
    reached = first.result.verified_to
    assert (reached, first.findings) == (min(offset, LOST), ())
    assert (first.result.target_to, first.result.compared) == (reached, reached)
    rest = PartitionRange(0, COUNT, reached, first.result.target_to)
    second = compared(monkeypatch, rest)
    assert [(finding.kind, finding.source_offset) for finding in second.findings] == [
        (FindingKind.MISSING, LOST)
    ]
    assert first.result.compared + second.result.compared == COUNT - 1


def test_nothing_is_kept_before_the_first_records_met(monkeypatch: pytest.MonkeyPatch) -> None:
    assert compared(monkeypatch, RANGE, cancelled_at=0).cancelled


def test_it_stops_at_the_end_of_the_range_only_when_all_is_explained(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = compared(monkeypatch, PartitionRange(0, 25, 0, 0), stop_at_end=True).result
    assert (before.verified_to, before.differences) == (30, 0)
    around = compared(monkeypatch, PartitionRange(0, LOST + 5, 0, 0), stop_at_end=True)
    assert [finding.source_offset for finding in around.findings] == [LOST]
    assert around.result.verified_to == COUNT


@pytest.mark.parametrize(
    ("wanted", "originals", "copies", "first"),
    [
        (RANGE, Extent(0, COUNT), Extent(0, COUNT), 0),
        (RANGE, Extent(30, COUNT), Extent(0, COUNT), 30),
        (RANGE, Extent(30, COUNT), Extent(70, COUNT), 70),
        (PartitionRange(0, COUNT, 90), Extent(30, COUNT), Extent(70, COUNT), 90),
    ],
)
def test_the_same_offsets_are_compared_from_where_both_logs_have_records(
    wanted: PartitionRange, originals: Extent, copies: Extent, first: int
) -> None:
    options = AuditOptions(start="latest", source_compacted=True, same_offsets=True)
    work = Work("t", "copy", {}, {}, wanted, options, 0, 10)
    none = cast(PartitionLog, None)
    start = locate(work, none, none, originals, copies)
    assert (start.source, start.target, start.leading) == (first, first, False)
    assert start.limits == Limits(source_compacted=True)


@pytest.mark.parametrize(
    ("copies", "start"),
    [
        (Extent(0, COUNT), (120, 121, False)),
        (Extent(131, COUNT), (130, 131, False)),
        (Extent(0, 0), (120, 121, False)),
    ],
)
def test_the_copy_of_the_first_record_is_sought_where_it_is_claimed_to_be(
    copies: Extent, start: tuple[int, int, bool]
) -> None:
    wanted = PartitionRange(0, COUNT, 120, claim=Claim(100, 1, COUNT))
    work = Work("t", "copy", {}, {}, wanted, AuditOptions(timestamps=False), 0, 10)
    none = cast(PartitionLog, None)
    found = locate(work, none, none, Extent(0, COUNT), copies)
    assert (found.source, found.target, found.leading) == start
    assert bool(found.notes) is (found.source > 120)
    work = replace(work, range=replace(wanted, first=99))
    assert locate(work, none, none, Extent(0, COUNT), copies).leading


@pytest.mark.parametrize(
    ("claim", "reached", "shifted"),
    [
        (Claim(0, 0, 45), 45, 0),
        (Claim(0, 0, COUNT), COUNT, COUNT - LOST - 1),
        (Claim(LOST + 1, -1, COUNT), COUNT, 0),
        (Claim(LOST, -1, COUNT), COUNT, 0),
        (Claim(LOST - 1, -1, COUNT), COUNT, 1),
    ],
)
def test_what_lies_behind_a_claim_is_left_to_a_later_comparison(
    claim: Claim, reached: int, shifted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = PartitionRange(0, 40, 0, 0, claim=claim)
    found = compared(monkeypatch, wanted)
    assert (found.result.verified_to, found.result.shifted) == (reached, shifted)
    rest = replace(wanted, end=COUNT, first=reached, target_first=found.result.target_to)
    assert compared(monkeypatch, rest).result.shifted == 0


@pytest.mark.parametrize("same_offsets", [True, False])
def test_all_records_of_the_target_are_read_where_offsets_are_to_be_the_same(
    same_offsets: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed: dict[str, bool] = {}

    def log(cluster: object, topic: str, *_: object, **options: Any) -> MemoryLog:
        committed[topic] = options["committed"]
        held = SOURCE if topic == "t" else TARGET
        return MemoryLog(held, before=lambda _: None, signals=options["signals"])

    monkeypatch.setattr(task, "PartitionLog", log)
    options = AuditOptions(same_offsets=same_offsets)
    found = compare_partition(
        Work("t", "copy", {}, {}, PartitionRange(0, COUNT, 0), options, 0, 10)
    )
    assert committed == {"t": True, "copy": not same_offsets}
    assert found.result.missing == 1
    assert found.result.shifted == (COUNT - LOST - 1) * same_offsets
