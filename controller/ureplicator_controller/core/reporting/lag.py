"""Lag, rates and retention of a partition, computed from samples of its position and its log.

A *sample* is taken at one moment: the position on the target, read first, then the extent of the source's
log. In this order a position is never above the end unless something is wrong.

* **Lag in records** is end - position, in offsets, so records that compaction removed count as well. Both
  are what a read_committed consumer sees. A copier's position also passes transaction markers and aborted
  records, so a partition that is fully copied has lag 0.
* **Held records** lie between that end and the end of the log: none of them may be copied before the first
  open transaction ends. Copying has everything that it may have at lag 0, but not all of the log.
* **Lag in seconds** is how long the record at the position, the next to be copied, has waited: now minus
  its timestamp. Its timestamp is not read for every partition in every sample, so this may be an upper
  bound: the age of an earlier record, or the time since a sample whose end the position has reached, since
  the next record is younger than that sample. A time before 1970 or far in the future is no time: producers
  may write anything (nanoseconds, the largest number), and the lag is unknown then.
* **Rates** are taken over a window of samples, not between two: positions advance in steps of a commit. The
  log start advances by whole segments and has a longer window. Time without copying although records
  waited (a pause, an outage) does not count once the position advances again.
* **Time to catch up** is the lag divided by what the position gains on the end; None while it does not gain.
* **Time to retention** is how long the next record is still kept: the retention time minus its age, or by
  size, how long the log start takes to get there at its rate. Brokers delete whole segments, so it may
  last longer, never shorter. None if no record waits or nothing is deleted, and for heartbeats;
  0: it may be deleted any time, or is gone.

A value that is unknown is None and has a reason, never 0: a partition that was never committed may have
its whole log still to copy.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ureplicator_common.kafka import (
    BatchTime,
    Extent,
    Lifetime,
    OpenTransaction,
    PartitionUnavailable,
)
from ureplicator_common.model import Partition

RATE_WINDOW_S = 30.0
STILL_S = 4.0
"""A time longer than a commit takes, shorter than the interval of samples."""
START_WINDOW_S = 600.0
"""Half a segment's life at a busy topic; a log start that has not moved in it is not approaching."""

MAX_AHEAD_MS = 24 * 3_600_000
"""A clock of a producer is not further ahead; what is, is no time."""

HELD_LONG_S = 60.0
"""Transactions of most producers end within a minute: one that lasts longer is named."""
HOLDER_MAX_AGE_S = 60.0
MAX_HOLDER_READS = 20
"""Partitions whose open transaction is asked for in a collection, for each source."""

NEVER_COMMITTED = "never committed: copying has not started"
ABOVE_END = "above the end of the source: its log was truncated, or the topic was recreated"


@dataclass(frozen=True, slots=True)
class LagSample:
    """One partition at one moment (monotonic). `position` None: never committed."""

    at_s: float
    position: int | None
    extent: Extent


@dataclass(frozen=True, slots=True)
class RateWindow:
    """Samples for a rate. `base` is between half a window and a window old, once there are enough."""

    base: LagSample
    middle: LagSample
    before: LagSample | None
    latest: LagSample


@dataclass(frozen=True, slots=True)
class LagHistory:
    """Samples of one partition: `short` for its rates, `long` for the rate of its log start."""

    short: RateWindow
    long: RateWindow


@dataclass(frozen=True, slots=True)
class RecordTime:
    """Timestamp of a partition's next record or of an earlier one, and when it was last requested."""

    time: BatchTime | None
    at_s: float


@dataclass(frozen=True, slots=True)
class HeldEnd:
    """A stable end that an open transaction holds, since when it was seen (monotonic), and which one, when
    it was last asked for."""

    end: int
    since_s: float
    holder: str = ""
    asked_s: float | None = None


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """Lag of one partition, to the stable end. `held_records`: offsets behind that end, held by an open
    transaction; `held_s`: for how long it has been seen so. `reason`: why a value is unknown, or what is
    wrong."""

    position: int | None = None
    start: int | None = None
    end: int | None = None
    lag_records: int | None = None
    lag_s: float | None = None
    records_per_s: float | None = None
    catch_up_s: float | None = None
    retention_s: float | None = None
    held_records: int | None = None
    held_s: float | None = None
    never_committed: bool = False
    reason: str = ""


@dataclass(frozen=True, slots=True)
class LagSummary:
    """Lag of many partitions: totals of the known ones, and the number of unknown ones."""

    partitions: int
    lag_records: int | None
    lag_s: float | None
    retention_s: float | None
    never_committed: int
    held_records: int | None
    held_s: float | None
    unknown: int
    """Partitions without a lag in records, including those never committed."""


def add_sample(history: LagHistory | None, sample: LagSample) -> LagHistory:
    """Add a sample to the history; restart the history if the log or position is another one."""
    if history is None or _is_restarted(history.short.latest, sample):
        first = RateWindow(base=sample, middle=sample, before=None, latest=sample)
        return LagHistory(first, first)
    long = _extended(history.long, sample, START_WINDOW_S)
    if _advances_again(history.short, sample):
        return LagHistory(
            RateWindow(base=sample, middle=sample, before=history.short.latest, latest=sample), long
        )
    return LagHistory(_extended(history.short, sample, RATE_WINDOW_S), long)


def _advances_again(window: RateWindow, sample: LagSample) -> bool:
    """True if the position advances after it had not for STILL_S, with records to copy."""
    before, latest = window.before, window.latest
    if before is None or latest.position is None or latest.at_s - before.at_s < STILL_S:
        return False
    waited = before.position == latest.position and before.extent.end > latest.position
    return waited and sample.position != latest.position


def _extended(window: RateWindow, sample: LagSample, window_s: float) -> RateWindow:
    base, middle = window.base, window.middle
    if sample.at_s - middle.at_s >= window_s / 2:
        base, middle = middle, sample
    return RateWindow(base=base, middle=middle, before=window.latest, latest=sample)


def _is_restarted(before: LagSample, sample: LagSample) -> bool:
    """Test for a position that went back or a log that got shorter: earlier samples give no rate."""
    if before.position is None or sample.position is None:
        return before.position is not sample.position
    return (
        sample.position < before.position
        or sample.extent.end < before.extent.end
        or sample.extent.start < before.extent.start
    )


def partition_lag(
    history: LagHistory,
    *,
    record: BatchTime | None,
    lifetime: Lifetime | None,
    wall_ms: int,
    held: HeldEnd | None = None,
    is_transient: bool = False,
) -> PartitionLag:
    """Compute one partition's lag. `record`: time of the next record or an earlier one, if known. `held`:
    the stable end that an open transaction holds, if it does. `is_transient`: records that are of no use
    when they expire, so that retention loses nothing."""
    sample = history.short.latest
    position, extent = sample.position, sample.extent
    held_s = sample.at_s - held.since_s if held else 0.0
    if position is None:
        return PartitionLag(
            start=extent.start,
            end=extent.end,
            held_records=extent.held,
            held_s=held_s,
            never_committed=True,
            reason=NEVER_COMMITTED,
        )
    if position > extent.end:
        return PartitionLag(position, extent.start, extent.end, reason=f"{position} is {ABOVE_END}")
    lag = extent.end - position
    age_s = _age_s(record, wall_ms) if record and record.first <= position else None
    return PartitionLag(
        position=position,
        start=extent.start,
        end=extent.end,
        lag_records=lag,
        lag_s=_lag_s(history.short, record, age_s) if lag else 0.0,
        records_per_s=_rate(history.short, position=True),
        catch_up_s=_catch_up_s(history.short, lag),
        retention_s=None
        if is_transient or not lag
        else _retention_s(history.long, lifetime, age_s),
        held_records=extent.held,
        held_s=held_s,
        reason="; ".join(
            filter(None, (_gap_reason(position, extent), _held_reason(held, held_s, extent)))
        ),
    )


def is_next(record: BatchTime | None, position: int) -> bool:
    """True if this is the timestamp of the record at the position, not of an earlier one."""
    return record is not None and record.first <= position <= record.last


def record_times_to_read(
    samples: Mapping[Partition, LagSample],
    *,
    before: Mapping[Partition, LagSample],
    readings: Mapping[Partition, RecordTime],
    limit: int,
) -> list[Partition]:
    """Partitions whose next record's timestamp to read now: lagging ones first, then longest unread.

    A partition lags if it has not reached the end of the previous sample.
    """
    urgency: list[tuple[bool, float, Partition]] = []
    for partition, sample in samples.items():
        position, extent = sample.position, sample.extent
        if position is None or not extent.start <= position < extent.end:
            continue
        reading = readings.get(partition)
        if reading is not None and is_next(reading.time, position):
            continue
        known = before.get(partition)
        is_recent = known is not None and known.extent.end <= position
        urgency.append((is_recent, reading.at_s if reading else -1.0, partition))
    return [partition for _, _, partition in heapq.nsmallest(limit, urgency)]


def _age_s(record: BatchTime, wall_ms: int) -> float | None:
    """Age of a record; 0 if the producer's clock is ahead of ours, None if its time is none."""
    if record.timestamp_ms < 0 or record.timestamp_ms > wall_ms + MAX_AHEAD_MS:
        return None
    return max(0.0, (wall_ms - record.timestamp_ms) / 1_000)


def _lag_s(window: RateWindow, record: BatchTime | None, age_s: float | None) -> float | None:
    position = window.latest.position
    assert position is not None
    if age_s is not None and is_next(record, position):
        return age_s
    bounds = [] if age_s is None else [age_s]
    if window.before is not None and window.before.extent.end <= position:
        bounds.append(window.latest.at_s - window.before.at_s)
    return min(bounds, default=None)


def _rate(window: RateWindow, *, position: bool) -> float | None:
    """Offsets per second of the position, or of the end; None with a single sample."""
    took_s = window.latest.at_s - window.base.at_s
    if took_s <= 0:
        return None
    if not position:
        return (window.latest.extent.end - window.base.extent.end) / took_s
    assert window.latest.position is not None
    assert window.base.position is not None
    return (window.latest.position - window.base.position) / took_s


def _catch_up_s(window: RateWindow, lag: int) -> float | None:
    if lag == 0:
        return 0.0
    own, end = _rate(window, position=True), _rate(window, position=False)
    if own is None or end is None or own <= end:
        return None
    return lag / (own - end)


def _retention_s(
    window: RateWindow, lifetime: Lifetime | None, age_s: float | None
) -> float | None:
    sample = window.latest
    assert sample.position is not None
    if sample.extent.start > sample.position:
        return 0.0
    if lifetime is None:
        return None
    left: list[float] = []
    if lifetime.retention_ms is not None and age_s is not None:
        left.append(lifetime.retention_ms / 1_000 - age_s)
    took_s = sample.at_s - window.base.at_s
    moved = sample.extent.start - window.base.extent.start
    if lifetime.retention_bytes is not None and moved > 0 and took_s > 0:
        left.append((sample.position - sample.extent.start) * took_s / moved)
    return max(0.0, min(left)) if left else None


def _gap_reason(position: int, extent: Extent) -> str:
    lost = extent.start - position
    return f"the source deleted {lost} offsets that were not copied" if lost > 0 else ""


def next_held(before: HeldEnd | None, sample: LagSample) -> HeldEnd | None:
    """The end that is held after this sample: since it stands where it is, with records behind it."""
    end, held = sample.extent.end, sample.extent.held
    if not held:
        return None
    return before if before is not None and before.end == end else HeldEnd(end, sample.at_s)


def holders_to_read(
    held: Mapping[Partition, HeldEnd | None], *, source: str, now_s: float
) -> list[tuple[str, int]]:
    """Partitions of a source whose open transaction to ask for now, those not asked for longest first."""
    due = [
        (-1.0 if end.asked_s is None else end.asked_s, partition.topic, partition.number)
        for partition, end in held.items()
        if end is not None
        and partition.route.source == source
        and now_s - end.since_s >= HELD_LONG_S
        and (end.asked_s is None or now_s - end.asked_s >= HOLDER_MAX_AGE_S)
    ]
    return list(dict.fromkeys((topic, n) for _, topic, n in sorted(due)))[:MAX_HOLDER_READS]


def holder_text(found: OpenTransaction | PartitionUnavailable | None, *, wall_ms: int) -> str:
    """The transaction that holds an end, in words; "" if there is none."""
    if found is None:
        return ""
    if isinstance(found, PartitionUnavailable):
        return f"an open transaction (which one is not known: {found})"
    who = f"producer {found.producer_id}"
    if not found.transactional_id:
        return (
            f"an open transaction of {who} since offset {found.first_offset} (no transactional id is"
            " shown: it is hanging, or we have no right to Describe it)"
        )
    age_s = max(0, wall_ms - found.began_ms) // 1_000
    age = f", begun {age_s} s ago" if found.began_ms > 0 else ""
    return (
        f"transaction {found.transactional_id} ({who}, {found.state}{age})"
        f" since offset {found.first_offset}"
    )


def _held_reason(held: HeldEnd | None, held_s: float, extent: Extent) -> str:
    if held is None or held_s < HELD_LONG_S:
        return ""
    who = held.holder or "an open transaction"
    return (
        f"{extent.held} offsets behind {extent.end} are held by {who}: none of them can be copied"
        " before it ends"
    )


def summarise(partitions: Iterable[PartitionLag]) -> LagSummary:
    """Summarise partitions: sum of lags, longest wait, earliest retention."""
    every = list(partitions)
    unknown = sum(lag.lag_records is None for lag in every)
    return _summary(every, partitions=len(every), unknown=unknown)


def combined(summaries: Iterable[LagSummary]) -> LagSummary:
    """Summary of the partitions of all these summaries together."""
    every = list(summaries)
    return _summary(
        every,
        partitions=sum(summary.partitions for summary in every),
        unknown=sum(summary.unknown for summary in every),
    )


def _summary(
    every: Sequence[PartitionLag | LagSummary], *, partitions: int, unknown: int
) -> LagSummary:
    lags = [lag.lag_records for lag in every if lag.lag_records is not None]
    held = [lag.held_records for lag in every if lag.held_records is not None]
    return LagSummary(
        partitions=partitions,
        lag_records=sum(lags) if lags else None,
        lag_s=max((lag.lag_s for lag in every if lag.lag_s is not None), default=None),
        retention_s=min(
            (lag.retention_s for lag in every if lag.retention_s is not None), default=None
        ),
        never_committed=sum(lag.never_committed for lag in every),
        held_records=sum(held) if held else None,
        held_s=max((lag.held_s for lag in every if lag.held_s is not None), default=None),
        unknown=unknown,
    )
