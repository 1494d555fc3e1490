"""How a partition fares here: its rate now and on average, and how long it makes no progress.

The leader evens out the *average*: a burst of seconds must move nothing. It is the mean over the
time that the partition was copied, and after `WINDOW_S` of that an exponential one. Time in ERROR
does not count: when the source is away all rates are zero, which says nothing about load.

A partition makes progress when its committed position moves, or when there is nothing to copy:
ONLINE and without lag. The worker measures this itself, by its own clock, so that any controller
can tell what is stuck from one look at the tree, whoever leads and since when.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ureplicator_common.model import PartitionLoad, PartitionState

WINDOW_S = 300.0
"""Above the few minutes that a producer's batch job or the catching up after a restart takes."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What is seen of a partition at one moment; counters only grow, -1: not known."""

    state: PartitionState
    records: int = 0
    bytes: int = 0
    position: int = -1
    committed: int = -1
    lag: int = -1


@dataclass(frozen=True, slots=True)
class Course:
    """What was seen so far: the last sample, the last known position, and when what began."""

    began_s: float
    seen_s: float
    progressed_s: float
    sample: Sample
    committed: int
    load: PartitionLoad


def begin(sample: Sample, now_s: float) -> Course:
    """The partition is held from now on."""
    return Course(now_s, now_s, now_s, sample, sample.committed, _known(PartitionLoad(), sample))


def follow(course: Course, sample: Sample, now_s: float) -> Course:
    """One sample later."""
    span_s = max(now_s - course.seen_s, 0.001)
    progressed_s = now_s if _progressed(course, sample) else course.progressed_s
    load = replace(
        _known(course.load, sample),
        bytes_per_s=(sample.bytes - course.sample.bytes) / span_s,
        records_per_s=(sample.records - course.sample.records) / span_s,
        held_s=now_s - course.began_s,
        no_progress_s=now_s - progressed_s,
    )
    if PartitionState.ONLINE is sample.state is course.sample.state:
        load = _averaged(load, span_s)
    committed = sample.committed if sample.committed >= 0 else course.committed
    return Course(course.began_s, now_s, progressed_s, sample, committed, load)


def _known(load: PartitionLoad, sample: Sample) -> PartitionLoad:
    return replace(load, position=sample.position, committed=sample.committed, lag=sample.lag)


def _progressed(course: Course, sample: Sample) -> bool:
    """A position that is known for the first time was only read."""
    if sample.state is PartitionState.ONLINE and sample.lag == 0:
        return True
    return 0 <= course.committed != sample.committed >= 0


def _averaged(load: PartitionLoad, span_s: float) -> PartitionLoad:
    measured_s = min(load.measured_s + span_s, WINDOW_S)
    change = (load.bytes_per_s - load.steady_bytes_per_s) * min(1.0, span_s / measured_s)
    return replace(load, steady_bytes_per_s=load.steady_bytes_per_s + change, measured_s=measured_s)
