"""One look at how far every whitelisted partition is: what is asked, and what is kept for the next look.

Positions are read first, then the source: in this order a position above the end means something. It
takes one OffsetFetch for each route and a handful of requests for each source cluster
(`ureplicator_common.kafka.log_offsets`), however many topics there are.

**Clusters fail alone.** Each has a thread of its own (`engines.desk`). One that fails, or gives no answer
within `CLUSTER_S`, leaves its own figures unknown, with the reason.

**Ages of records** cost a fetch each (their batch's header), so at most `READINGS` are read in a look.
The others keep an older one, which is an upper bound (`ureplicator_controller.core.reporting.lag`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from ureplicator_common.clock import Clock
from ureplicator_common.errors import OperatingError
from ureplicator_common.kafka import (
    BatchTime,
    Extent,
    Lifetime,
    LogReader,
    PartitionUnavailable,
    Position,
    PositionReader,
)
from ureplicator_common.model import Partition, Route, TopicIntent, TopicKey, position_group
from ureplicator_controller.api.lag.cluster_reader import ClusterReader, query_all
from ureplicator_controller.core.reporting.lag import (
    LagHistory,
    LagSample,
    PartitionLag,
    RecordTime,
    add_sample,
    partition_lag,
    record_times_to_read,
)

CLUSTER_S = 5.0
LIFETIMES_S = 60.0
READINGS = 300
"""300 batches of 16 KiB: 5 MB in a look, if all of them are behind."""
NEAR_S = 3_600.0
"""Retention that passes a position within an hour is worth waking somebody."""

logger = logging.getLogger(__name__)

Topics = Mapping[TopicKey, TopicIntent]
TopicPartition = tuple[str, int]
Positions = Mapping[Route, Mapping[TopicPartition, Position] | OperatingError]


@dataclass(frozen=True, slots=True)
class LagReport:
    """One look: figures of each partition, at a time of the monotonic clock."""

    at_s: float
    topics: Mapping[TopicKey, Mapping[int, PartitionLag]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Question:
    """What a look wants of one source cluster; `before` and `readings` are from the looks before it."""

    wanted: Mapping[str, Sequence[int]]
    positions: Mapping[Partition, int]
    before: Mapping[Partition, LagSample]
    readings: Mapping[Partition, RecordTime]
    lifetimes: bool


@dataclass(frozen=True, slots=True)
class _Answer:
    """`asked`: whose time was asked for; `times` has those that were at hand."""

    extents: Mapping[TopicPartition, Extent | PartitionUnavailable]
    asked: Sequence[Partition]
    times: Mapping[Partition, BatchTime]
    lifetimes: Mapping[str, Lifetime] | None


class LagCollector:
    """Belongs to one thread. `positions` and `logs` make the readers of a cluster by its name."""

    def __init__(
        self,
        *,
        fleet: str,
        positions: Callable[[str], PositionReader],
        logs: Callable[[str], LogReader],
        clock: Clock,
    ) -> None:
        self._fleet = fleet
        self._connect_positions = positions
        self._connect_logs = logs
        self._clock = clock
        self._targets: dict[str, ClusterReader[PositionReader]] = {}
        self._sources: dict[str, ClusterReader[LogReader]] = {}
        self._tracks: dict[Partition, LagHistory] = {}
        self._readings: dict[Partition, RecordTime] = {}
        self._lifetimes: dict[str, tuple[float, Mapping[str, Lifetime]]] = {}
        self._near: frozenset[TopicKey] = frozenset()

    def look(self, topics: Topics) -> LagReport:
        self._open_readers(topics)
        began_s = self._clock.monotonic_s()
        positions = self._read_positions(topics)
        logs = self._read_logs(topics, positions)
        found: dict[TopicKey, dict[int, PartitionLag]] = {}
        for key, intent in topics.items():
            answer = logs[key.route.source]
            found[key] = {
                partition.number: self._figures(
                    partition, _position(positions, partition, intent), answer, began_s
                )
                for partition in _partitions(key, intent)
            }
        self._forget_others(topics)
        self._warn(found)
        return LagReport(self._clock.monotonic_s(), found)

    def close(self) -> None:
        for target in self._targets.values():
            target.close()
        for source in self._sources.values():
            source.close()

    # --- Asking

    def _open_readers(self, topics: Topics) -> None:
        for route in {key.route for key in topics}:
            if route.target not in self._targets:
                self._targets[route.target] = ClusterReader(
                    partial(self._connect_positions, route.target),
                    name="positions",
                    clock=self._clock,
                )
            if route.source not in self._sources:
                self._sources[route.source] = ClusterReader(
                    partial(self._connect_logs, route.source), name="logs", clock=self._clock
                )

    def _read_positions(self, topics: Topics) -> Positions:
        """All of a route in one request."""
        wanted: dict[Route, dict[str, Sequence[int]]] = {}
        for key, intent in topics.items():
            of_route = wanted.setdefault(key.route, {})
            of_route[intent.target_topic or key.topic] = range(intent.partitions)
        questions = {
            target: self._positions_question(
                {route: found for route, found in wanted.items() if route.target == target}
            )
            for target in {route.target for route in wanted}
        }
        answers = query_all(self._targets, questions, patience_s=CLUSTER_S)
        found: dict[Route, Mapping[TopicPartition, Position] | OperatingError] = {}
        for route in wanted:
            answer = answers[route.target]
            found[route] = answer if isinstance(answer, OperatingError) else answer[route]
        return found

    def _positions_question(
        self, wanted: Mapping[Route, Mapping[str, Sequence[int]]]
    ) -> Callable[[PositionReader], dict[Route, Mapping[TopicPartition, Position]]]:
        return lambda reader: {
            route: reader.read(position_group(fleet=self._fleet, route=route), topics)
            for route, topics in wanted.items()
        }

    def _read_logs(
        self, topics: Topics, positions: Positions
    ) -> Mapping[str, _Answer | OperatingError]:
        questions = {
            source: self._logs_question(source, topics, positions)
            for source in {key.route.source for key in topics}
        }
        answers = query_all(self._sources, questions, patience_s=CLUSTER_S)
        for source, answer in answers.items():
            if isinstance(answer, _Answer):
                self._remember(source, answer)
        return answers

    def _logs_question(
        self, source: str, topics: Topics, positions: Positions
    ) -> Callable[[LogReader], _Answer]:
        """Routes from the same source share what does not depend on their positions."""
        wanted: dict[str, Sequence[int]] = {}
        known: dict[Partition, int] = {}
        for key, intent in topics.items():
            if key.route.source == source:
                most = max(intent.partitions, len(wanted.get(key.topic, ())))
                wanted[key.topic] = range(most)
                for partition in _partitions(key, intent):
                    position = _position(positions, partition, intent)
                    if isinstance(position, int):
                        known[partition] = position
        read_at_s, _ = self._lifetimes.get(source, (-LIFETIMES_S, {}))
        question = _Question(
            wanted=wanted,
            positions=known,
            before={each: tracks.short.latest for each, tracks in self._tracks.items()},
            readings=dict(self._readings),
            lifetimes=self._clock.monotonic_s() - read_at_s >= LIFETIMES_S,
        )
        return lambda reader: _ask(reader, question)

    def _remember(self, source: str, answer: _Answer) -> None:
        now_s = self._clock.monotonic_s()
        if answer.lifetimes is not None:
            self._lifetimes[source] = (now_s, answer.lifetimes)
        for partition in answer.asked:
            before = self._readings.get(partition)
            time = answer.times.get(partition) or (before.time if before else None)
            self._readings[partition] = RecordTime(time, now_s)

    # --- Judging

    def _figures(
        self,
        partition: Partition,
        position: int | OperatingError | None,
        answer: _Answer | OperatingError,
        began_s: float,
    ) -> PartitionLag:
        extent: Extent | OperatingError
        if isinstance(answer, OperatingError):
            extent = answer
        else:
            extent = answer.extents[(partition.topic, partition.number)]
        if isinstance(position, OperatingError) or isinstance(extent, OperatingError):
            return _unknown(partition.route, position, extent)
        tracks = add_sample(
            self._tracks.get(partition), LagSample(self._clock.monotonic_s(), position, extent)
        )
        self._tracks[partition] = tracks
        reading = self._readings.get(partition)
        if reading is not None and tracks.short.before is None and reading.at_s < began_s:
            del self._readings[partition]  # of a log that is no longer this one
            reading = None
        lifetimes = self._lifetimes.get(partition.route.source, (0.0, {}))[1]
        return partition_lag(
            tracks,
            record=reading.time if reading else None,
            lifetime=lifetimes.get(partition.topic),
            wall_ms=self._clock.wall_ms(),
        )

    def _forget_others(self, topics: Topics) -> None:
        """What is known of partitions that are no longer whitelisted."""
        kept = {
            partition for key, intent in topics.items() for partition in _partitions(key, intent)
        }
        self._tracks = {each: found for each, found in self._tracks.items() if each in kept}
        self._readings = {each: found for each, found in self._readings.items() if each in kept}

    def _warn(self, found: Mapping[TopicKey, Mapping[int, PartitionLag]]) -> None:
        """Once for each topic, until it is out of danger."""
        near = {key: left for key, of in found.items() if (left := _near(of))}
        for key in near.keys() - self._near:
            soonest = min(near[key], key=near[key].__getitem__)
            logger.warning(
                "%s: retention at the source passes the position of partition %d in %d min"
                " (%d partitions within an hour)",
                key,
                soonest,
                near[key][soonest] // 60,
                len(near[key]),
            )
        self._near = frozenset(near)


def _ask(reader: LogReader, question: _Question) -> _Answer:
    """On the cluster's thread."""
    extents = reader.extents(question.wanted)
    looks = {
        partition: LagSample(0.0, position, extent)
        for partition, position in question.positions.items()
        if isinstance(extent := extents[(partition.topic, partition.number)], Extent)
    }
    asked = record_times_to_read(
        looks, before=question.before, readings=question.readings, most=READINGS
    )
    times: dict[Partition, BatchTime] = {}
    for route in {partition.route for partition in asked}:
        of_route = [partition for partition in asked if partition.route == route]
        offsets = {(each.topic, each.number): question.positions[each] for each in of_route}
        found = reader.batch_times(offsets)
        times |= {
            each: found[(each.topic, each.number)]
            for each in of_route
            if (each.topic, each.number) in found
        }
    lifetimes = reader.lifetimes(list(question.wanted)) if question.lifetimes else None
    return _Answer(extents, asked, times, lifetimes)


def _partitions(key: TopicKey, intent: TopicIntent) -> list[Partition]:
    return [Partition(key.route, key.topic, number) for number in range(intent.partitions)]


def _position(
    positions: Positions, partition: Partition, intent: TopicIntent
) -> int | OperatingError | None:
    """None where none was ever committed."""
    found = positions[partition.route]
    if isinstance(found, OperatingError):
        return found
    stored = found.get((intent.target_topic or partition.topic, partition.number))
    return stored.offset if stored is not None and stored.offset >= 0 else None


def _unknown(
    route: Route, position: int | OperatingError | None, extent: Extent | OperatingError
) -> PartitionLag:
    """What is known all the same, and who did not answer."""
    wrong = [
        f"{cluster}: {end}"
        for cluster, end in ((route.target, position), (route.source, extent))
        if isinstance(end, OperatingError)
    ]
    return PartitionLag(
        position=position if isinstance(position, int) else None,
        start=extent.start if isinstance(extent, Extent) else None,
        end=extent.end if isinstance(extent, Extent) else None,
        reason="; ".join(wrong),
    )


def _near(partitions: Mapping[int, PartitionLag]) -> dict[int, float]:
    return {
        number: each.retention_s
        for number, each in partitions.items()
        if each.retention_s is not None and each.retention_s < NEAR_S
    }
