"""How far behind a partition is, from looks at both ends of it.

A *look* is what was seen at one moment: the position on the target, read first, then the extent of the
source's log. Read in this order a position is never above the end unless something is wrong.

* **Lag in records** is end - position: offsets, so what compaction removed counts as well. Both are as a
  reader of committed records sees them. A copier's position also passes markers of transactions and
  aborted records, so a partition that is fully copied has lag 0.
* **Lag in seconds** is how long the record at the position, the next to be copied, has waited: now less
  its timestamp. Its time is not read for every partition at every look, so this may be an upper bound:
  the age of an earlier record, or the time since a look whose end the position has reached, since what
  comes next is younger than that look.
* **Rates** are taken over a window of looks, not between two: positions move in steps of a commit. The
  log start moves by whole segments and gets a longer window. Time in which nothing was copied, though
  records waited (a pause, an outage), does not count once the position moves again.
* **Time to catch up** is lag by what the position gains on the end; none while it does not gain.
* **Time to retention** is how long the next record is still kept: the retention time less its age, or by
  size, how long the log start needs to get there at its rate. Brokers delete whole segments, so it may
  last longer, never shorter. None where nothing waits or nothing is deleted; 0: it may go, or is gone.

What is not known is None and has a reason, never 0: a partition that was never committed may have
everything before it.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ureplicator_common.kafka import BatchTime, Extent, Lifetime
from ureplicator_common.model import Partition

RATE_WINDOW_S = 30.0
STILL_S = 4.0
"""Longer than a commit takes, shorter than from one look to the next."""
START_WINDOW_S = 600.0
"""Half a segment's life at a busy topic; a log start that stood still in it is not approaching."""

NEVER_COMMITTED = "never committed: copying has not begun"
ABOVE_END = "above the end of the source: its log was cut, or the topic was recreated"


@dataclass(frozen=True, slots=True)
class LagSample:
    """One partition at one moment (monotonic). `position`: None where none was ever committed."""

    at_s: float
    position: int | None
    extent: Extent


@dataclass(frozen=True, slots=True)
class RateWindow:
    """Looks that rates are taken over: `base` is half a window to a window old, once it can be."""

    base: LagSample
    middle: LagSample
    before: LagSample | None
    latest: LagSample


@dataclass(frozen=True, slots=True)
class LagHistory:
    """One partition's way: for its rates, and for that of its log start."""

    short: RateWindow
    long: RateWindow


@dataclass(frozen=True, slots=True)
class RecordTime:
    """When the time of a partition's next record was asked for last, and what was found then or before."""

    time: BatchTime | None
    at_s: float


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """One partition, for people. `reason`: why something is not known, or what is wrong."""

    position: int | None = None
    start: int | None = None
    end: int | None = None
    lag_records: int | None = None
    lag_s: float | None = None
    records_per_s: float | None = None
    catch_up_s: float | None = None
    retention_s: float | None = None
    never_committed: bool = False
    reason: str = ""


@dataclass(frozen=True, slots=True)
class LagSummary:
    """Many partitions: what those amount to that are known, and how many are not."""

    partitions: int
    lag_records: int | None
    lag_s: float | None
    retention_s: float | None
    never_committed: int
    unknown: int
    """Without a lag in records, those never committed included."""


def add_sample(tracks: LagHistory | None, sample: LagSample) -> LagHistory:
    """The way so far with one more look; begun anew where the partition is another one now."""
    if tracks is None or _begun_anew(tracks.short.latest, sample):
        first = RateWindow(base=sample, middle=sample, before=None, latest=sample)
        return LagHistory(first, first)
    long = _extended(tracks.long, sample, START_WINDOW_S)
    if _moves_again(tracks.short, sample):
        return LagHistory(
            RateWindow(base=sample, middle=sample, before=tracks.short.latest, latest=sample), long
        )
    return LagHistory(_extended(tracks.short, sample, RATE_WINDOW_S), long)


def _moves_again(track: RateWindow, sample: LagSample) -> bool:
    """After a look that found it where it was STILL_S before, with records to copy."""
    before, latest = track.before, track.latest
    if before is None or latest.position is None or latest.at_s - before.at_s < STILL_S:
        return False
    waited = before.position == latest.position and before.extent.end > latest.position
    return waited and sample.position != latest.position


def _extended(track: RateWindow, sample: LagSample, window_s: float) -> RateWindow:
    base, middle = track.base, track.middle
    if sample.at_s - middle.at_s >= window_s / 2:
        base, middle = middle, sample
    return RateWindow(base=base, middle=middle, before=track.latest, latest=sample)


def _begun_anew(before: LagSample, sample: LagSample) -> bool:
    """A position that goes back, or a log that gets shorter, has no rate with what was before."""
    if before.position is None or sample.position is None:
        return before.position is not sample.position
    return (
        sample.position < before.position
        or sample.extent.end < before.extent.end
        or sample.extent.start < before.extent.start
    )


def partition_lag(
    tracks: LagHistory, *, record: BatchTime | None, lifetime: Lifetime | None, wall_ms: int
) -> PartitionLag:
    """`record` is the time of the next record, or of one before it; None where it is not known."""
    sample = tracks.short.latest
    position, extent = sample.position, sample.extent
    if position is None:
        return PartitionLag(
            start=extent.start, end=extent.end, never_committed=True, reason=NEVER_COMMITTED
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
        lag_s=_lag_s(tracks.short, record, age_s) if lag else 0.0,
        records_per_s=_rate(tracks.short, position=True),
        catch_up_s=_catch_up_s(tracks.short, lag),
        retention_s=_retention_s(tracks.long, lifetime, age_s) if lag else None,
        reason=_gone(position, extent),
    )


def is_next(record: BatchTime | None, position: int) -> bool:
    """Whether this tells the time of the record at the position, and not of one before it."""
    return record is not None and record.first <= position <= record.last


def record_times_to_read(
    samples: Mapping[Partition, LagSample],
    *,
    before: Mapping[Partition, LagSample],
    readings: Mapping[Partition, RecordTime],
    most: int,
) -> list[Partition]:
    """Whose next record's time to read now: those that are behind first, the longest unread first.

    Behind is who has not even reached the end of the look before; the others are moments late.
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
        moments_late = known is not None and known.extent.end <= position
        urgency.append((moments_late, reading.at_s if reading else -1.0, partition))
    return [partition for _, _, partition in heapq.nsmallest(most, urgency)]


def _age_s(record: BatchTime, wall_ms: int) -> float | None:
    """A clock that is behind the producer's makes nobody younger than now."""
    if record.timestamp_ms < 0:
        return None
    return max(0.0, (wall_ms - record.timestamp_ms) / 1_000)


def _lag_s(track: RateWindow, record: BatchTime | None, age_s: float | None) -> float | None:
    position = track.latest.position
    assert position is not None
    if age_s is not None and is_next(record, position):
        return age_s
    bounds = [] if age_s is None else [age_s]
    if track.before is not None and track.before.extent.end <= position:
        bounds.append(track.latest.at_s - track.before.at_s)
    return min(bounds, default=None)


def _rate(track: RateWindow, *, position: bool) -> float | None:
    """Offsets a second of the position, or of the end; None with one look only."""
    took_s = track.latest.at_s - track.base.at_s
    if took_s <= 0:
        return None
    if not position:
        return (track.latest.extent.end - track.base.extent.end) / took_s
    assert track.latest.position is not None
    assert track.base.position is not None
    return (track.latest.position - track.base.position) / took_s


def _catch_up_s(track: RateWindow, lag: int) -> float | None:
    if lag == 0:
        return 0.0
    own, end = _rate(track, position=True), _rate(track, position=False)
    if own is None or end is None or own <= end:
        return None
    return lag / (own - end)


def _retention_s(track: RateWindow, lifetime: Lifetime | None, age_s: float | None) -> float | None:
    sample = track.latest
    assert sample.position is not None
    if sample.extent.start > sample.position:
        return 0.0
    if lifetime is None:
        return None
    left: list[float] = []
    if lifetime.retention_ms is not None and age_s is not None:
        left.append(lifetime.retention_ms / 1_000 - age_s)
    took_s = sample.at_s - track.base.at_s
    moved = sample.extent.start - track.base.extent.start
    if lifetime.retention_bytes is not None and moved > 0 and took_s > 0:
        left.append((sample.position - sample.extent.start) * took_s / moved)
    return max(0.0, min(left)) if left else None


def _gone(position: int, extent: Extent) -> str:
    lost = extent.start - position
    return f"the source let go of {lost} offsets that were not copied" if lost > 0 else ""


def summarise(partitions: Iterable[PartitionLag]) -> LagSummary:
    """Sum of the lags, the longest wait, the nearest end."""
    every = list(partitions)
    lags = [each.lag_records for each in every if each.lag_records is not None]
    return LagSummary(
        partitions=len(every),
        lag_records=sum(lags) if lags else None,
        lag_s=max((each.lag_s for each in every if each.lag_s is not None), default=None),
        retention_s=min(
            (each.retention_s for each in every if each.retention_s is not None), default=None
        ),
        never_committed=sum(each.never_committed for each in every),
        unknown=len(every) - len(lags),
    )
