"""Load of one partition: its rate now and on average, and how long it has made no progress.

The leader balances the *average*: a burst of seconds must move nothing. It is the mean over the time
that the partition was copied, and after `WINDOW_S` of that an exponential one. Time in ERROR does not
count: while the source is unreachable all rates are zero, which is not a measure of load.

A partition makes progress when its committed position moves, or when there is nothing to copy: ONLINE
and without lag, which ends before the first open transaction of the source. The worker measures this
itself, by its own clock, so that any controller can tell from one snapshot which partitions make no
progress, whichever controller leads and since when.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ureplicator_common.model import OffsetShift, PartitionState
from ureplicator_common.znode_contents import PartitionLoad

WINDOW_S = 300.0
"""A time above the few minutes of a producer's batch job, or of the lag after a restart."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Counters and positions of a partition at one moment; counters only grow, -1: not known."""

    state: PartitionState
    records: int = 0
    bytes: int = 0
    position: int = -1
    committed: int = -1
    lag: int = -1
    offsets: OffsetShift | None = None


@dataclass(frozen=True, slots=True)
class LoadTrend:
    """The samples so far: the last one, the last known committed position, and when each began."""

    first_s: float
    last_s: float
    progressed_s: float
    sample: Sample
    committed: int
    load: PartitionLoad


def first(sample: Sample, now_s: float) -> LoadTrend:
    """The first sample of a partition that is held from now on."""
    return LoadTrend(now_s, now_s, now_s, sample, sample.committed, _known(PartitionLoad(), sample))


def following(trend: LoadTrend, sample: Sample, now_s: float) -> LoadTrend:
    """The trend with one sample more."""
    span_s = max(now_s - trend.last_s, 0.001)
    progressed_s = now_s if _progressed(trend, sample) else trend.progressed_s
    load = replace(
        _known(trend.load, sample),
        bytes_per_s=(sample.bytes - trend.sample.bytes) / span_s,
        records_per_s=(sample.records - trend.sample.records) / span_s,
        held_s=now_s - trend.first_s,
        no_progress_s=now_s - progressed_s,
    )
    if PartitionState.ONLINE is sample.state is trend.sample.state:
        load = _averaged(load, span_s)
    committed = sample.committed if sample.committed >= 0 else trend.committed
    return LoadTrend(trend.first_s, now_s, progressed_s, sample, committed, load)


def _known(load: PartitionLoad, sample: Sample) -> PartitionLoad:
    return replace(
        load,
        position=sample.position,
        committed=sample.committed,
        lag=sample.lag,
        offsets=sample.offsets,
    )


def _progressed(trend: LoadTrend, sample: Sample) -> bool:
    """A committed position that is known for the first time was only read, not moved."""
    if sample.state is PartitionState.ONLINE and sample.lag == 0:
        return True
    return 0 <= trend.committed != sample.committed >= 0


def _averaged(load: PartitionLoad, span_s: float) -> PartitionLoad:
    measured_s = min(load.measured_s + span_s, WINDOW_S)
    change = (load.bytes_per_s - load.steady_bytes_per_s) * min(1.0, span_s / measured_s)
    return replace(load, steady_bytes_per_s=load.steady_bytes_per_s + change, measured_s=measured_s)
