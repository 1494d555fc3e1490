"""One collection of lag: positions and log offsets of every whitelisted partition.

Positions are read first, then the source: in this order a position above the log end is an error and
not a race. A collection takes one OffsetFetch for each route and a handful of requests for each source
cluster (`ureplicator_common.kafka.log_offsets`), however many topics there are.

**Clusters fail alone.** Each has a thread of its own (`cluster_reader`). A cluster that fails, or that
does not respond within `CLUSTER_TIMEOUT_S`, leaves only its own figures unknown, with the reason.

**Record timestamps** cost a fetch each (the header of their batch), so at most `MAX_TIMESTAMP_READS`
are read in a collection. The other partitions keep an older timestamp, which is an upper bound of their
lag in seconds (`ureplicator_controller.core.reporting.lag`).

**Open transactions** are asked for only where one holds the end of a partition for longer than
`HELD_LONG_S`, of few partitions in a collection.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

from ureplicator_common.clock import Clock
from ureplicator_common.errors import OperatingError
from ureplicator_common.heartbeats import is_heartbeat_topic
from ureplicator_common.kafka import (
    BatchTime,
    ClusterUnavailable,
    Extent,
    Lifetime,
    LogReader,
    OpenTransaction,
    PartitionUnavailable,
    PositionOrError,
    PositionReader,
)
from ureplicator_common.model import Partition, Route, TopicKey, position_group
from ureplicator_common.znode_contents import TopicIntent
from ureplicator_controller.api.lag_collection.cluster_reader import ClusterReader, query_all
from ureplicator_controller.core.reporting.lag import (
    HeldEnd,
    LagHistory,
    LagSample,
    LagSummary,
    PartitionLag,
    RecordTime,
    add_sample,
    holder_text,
    holders_to_read,
    next_held,
    partition_lag,
    record_times_to_read,
    summarise,
)

CLUSTER_TIMEOUT_S = 5.0
LIFETIMES_MAX_AGE_S = 60.0
"""Retention settings of topics change seldom: they are read once a minute."""
MAX_TIMESTAMP_READS = 300
"""300 batches of 16 KiB: 5 MB in a collection if all of them lag."""
RETENTION_WARNING_S = 3_600.0
"""Retention that passes a position within an hour is worth a warning."""

log = logging.getLogger(__name__)

IntentsByKey = Mapping[TopicKey, TopicIntent]
TopicPartition = tuple[str, int]
RoutePositions = Mapping[TopicPartition, PositionOrError]
Positions = Mapping[Route, RoutePositions | OperatingError]


@dataclass(frozen=True)
class LagReport:
    """Result of one collection: figures of each partition, at a time of the monotonic clock."""

    at_s: float
    topics: Mapping[TopicKey, Mapping[int, PartitionLag]] = field(default_factory=dict)

    @cached_property
    def summaries(self) -> Mapping[TopicKey, LagSummary]:
        """Lag of each topic, summed once for all who read this report."""
        return {key: summarise(lags.values()) for key, lags in self.topics.items()}


@dataclass(frozen=True, slots=True)
class _LogQuery:
    """Reads of one source in a collection; `before` and `readings` are from earlier collections."""

    wanted: Mapping[str, Sequence[int]]
    positions: Mapping[Partition, int]
    before: Mapping[Partition, LagSample]
    readings: Mapping[Partition, RecordTime]
    lifetimes: bool
    held: Sequence[TopicPartition]


@dataclass(frozen=True, slots=True)
class _LogResult:
    """`requested`: partitions whose timestamp was requested; `times`: those that were returned."""

    extents: Mapping[TopicPartition, Extent | PartitionUnavailable]
    requested: Sequence[Partition]
    times: Mapping[Partition, BatchTime]
    lifetimes: Mapping[str, Lifetime] | None
    holders: Mapping[TopicPartition, OpenTransaction | PartitionUnavailable | None]


class LagCollector:
    """Collector of lag, used by one thread. `positions` and `logs` connect to a cluster by its name."""

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
        self._held: dict[Partition, HeldEnd | None] = {}
        self._readings: dict[Partition, RecordTime] = {}
        self._lifetimes: dict[str, tuple[float, Mapping[str, Lifetime]]] = {}
        self._near_retention: frozenset[TopicKey] = frozenset()

    def collect(self, topics: IntentsByKey) -> LagReport:
        self._open_readers(topics)
        began_s = self._clock.monotonic_s()
        positions = self._read_positions(topics)
        logs = self._read_logs(topics, positions)
        found: dict[TopicKey, dict[int, PartitionLag]] = {}
        for key, intent in topics.items():
            found[key] = self._topic(key, intent, positions, logs[key.route.source], began_s)
        self._drop_others(topics)
        self._warn(found)
        return LagReport(self._clock.monotonic_s(), found)

    def close(self) -> None:
        for target in self._targets.values():
            target.close()
        for source in self._sources.values():
            source.close()

    # --- Reading

    def _open_readers(self, topics: IntentsByKey) -> None:
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

    def _read_positions(self, topics: IntentsByKey) -> Positions:
        """All positions of a route in one request."""
        wanted: dict[Route, dict[str, Sequence[int]]] = {}
        for key, intent in topics.items():
            of_route = wanted.setdefault(key.route, {})
            of_route[intent.target_topic] = range(intent.partitions)
        queries = {
            target: self._position_query(
                {route: topics for route, topics in wanted.items() if route.target == target}
            )
            for target in {route.target for route in wanted}
        }
        results = query_all(self._targets, queries, timeout_s=CLUSTER_TIMEOUT_S)
        found: dict[Route, RoutePositions | OperatingError] = {}
        for route in wanted:
            result = results[route.target]
            found[route] = result if isinstance(result, OperatingError) else result[route]
        return found

    def _position_query(
        self, wanted: Mapping[Route, Mapping[str, Sequence[int]]]
    ) -> Callable[[PositionReader], dict[Route, RoutePositions]]:
        return lambda reader: {
            route: reader.read(position_group(fleet=self._fleet, route=route), topics)
            for route, topics in wanted.items()
        }

    def _read_logs(
        self, topics: IntentsByKey, positions: Positions
    ) -> Mapping[str, _LogResult | OperatingError]:
        queries = {
            source: partial(_read_log, query=self._log_query(source, topics, positions))
            for source in {key.route.source for key in topics}
        }
        results = query_all(self._sources, queries, timeout_s=CLUSTER_TIMEOUT_S)
        for source, result in results.items():
            if isinstance(result, _LogResult):
                self._remember(source, result)
        return results

    def _log_query(self, source: str, topics: IntentsByKey, positions: Positions) -> _LogQuery:
        """Routes from the same source share what does not depend on their positions."""
        wanted: dict[str, Sequence[int]] = {}
        known: dict[Partition, int] = {}
        for key, intent in topics.items():
            if key.route.source == source:
                count = max(intent.partitions, len(wanted.get(key.topic, ())))
                wanted[key.topic] = range(count)
                if isinstance(positions[key.route], OperatingError):
                    continue
                for partition in _partitions(key, intent):
                    position = _position(positions, partition, intent)
                    if isinstance(position, int):
                        known[partition] = position
        read_at_s, _ = self._lifetimes.get(source, (-LIFETIMES_MAX_AGE_S, {}))
        return _LogQuery(
            wanted=wanted,
            positions=known,
            before={tracked: tracks.short.latest for tracked, tracks in self._tracks.items()},
            readings=dict(self._readings),
            lifetimes=self._clock.monotonic_s() - read_at_s >= LIFETIMES_MAX_AGE_S,
            held=holders_to_read(self._held, source=source, now_s=self._clock.monotonic_s()),
        )

    def _remember(self, source: str, result: _LogResult) -> None:
        now_s = self._clock.monotonic_s()
        if result.lifetimes is not None:
            self._lifetimes[source] = (now_s, result.lifetimes)
        for partition in result.requested:
            before = self._readings.get(partition)
            time = result.times.get(partition) or (before.time if before else None)
            self._readings[partition] = RecordTime(time, now_s)
        for partition, held in self._held.items():
            key = (partition.topic, partition.number)
            if held is not None and partition.route.source == source and key in result.holders:
                text = holder_text(result.holders[key], wall_ms=self._clock.wall_ms())
                self._held[partition] = replace(held, holder=text, asked_s=now_s)

    # --- Evaluation

    def _topic(
        self,
        key: TopicKey,
        intent: TopicIntent,
        positions: Positions,
        result: _LogResult | OperatingError,
        began_s: float,
    ) -> dict[int, PartitionLag]:
        of_route = positions[key.route]
        if isinstance(of_route, OperatingError) and isinstance(result, OperatingError):
            unknown = _unknown(key.route, of_route, result)
            return dict.fromkeys(range(intent.partitions), unknown)
        return {
            partition.number: self._figures(
                partition, _position(positions, partition, intent), result, began_s
            )
            for partition in _partitions(key, intent)
        }

    def _figures(
        self,
        partition: Partition,
        position: int | OperatingError | None,
        result: _LogResult | OperatingError,
        began_s: float,
    ) -> PartitionLag:
        extent: Extent | OperatingError
        if isinstance(result, OperatingError):
            extent = result
        else:
            extent = result.extents[(partition.topic, partition.number)]
        if isinstance(position, OperatingError) or isinstance(extent, OperatingError):
            return _unknown(partition.route, position, extent)
        sample = LagSample(self._clock.monotonic_s(), position, extent)
        tracks = self._tracks[partition] = add_sample(self._tracks.get(partition), sample)
        held = self._held[partition] = next_held(self._held.get(partition), sample)
        reading = self._readings.get(partition)
        if reading is not None and tracks.short.before is None and reading.at_s < began_s:
            del self._readings[partition]  # the topic was recreated: another log
            reading = None
        lifetimes = self._lifetimes.get(partition.route.source, (0.0, {}))[1]
        return partition_lag(
            tracks,
            record=reading.time if reading else None,
            lifetime=lifetimes.get(partition.topic),
            wall_ms=self._clock.wall_ms(),
            held=held,
            is_transient=is_heartbeat_topic(partition.topic),
        )

    def _drop_others(self, topics: IntentsByKey) -> None:
        """Drop what is known of partitions that are no longer whitelisted."""
        for known in (self._tracks, self._readings, self._held):
            for partition in [tracked for tracked in known if not _is_whitelisted(tracked, topics)]:
                del known[partition]

    def _warn(self, found: Mapping[TopicKey, Mapping[int, PartitionLag]]) -> None:
        """Warn once for each topic until no partition of it is near the retention limit."""
        near = {key: left for key, of in found.items() if (left := _near_retention(of))}
        for key in near.keys() - self._near_retention:
            soonest = min(near[key], key=near[key].__getitem__)
            log.warning(
                "%s: retention at the source passes the position of partition %d in %d min"
                " (%d partitions within an hour)",
                key,
                soonest,
                near[key][soonest] // 60,
                len(near[key]),
            )
        self._near_retention = frozenset(near)


def _read_log(reader: LogReader, query: _LogQuery) -> _LogResult:
    """Read logs, on the cluster's thread."""
    extents = reader.extents(query.wanted)
    samples = {
        partition: LagSample(0.0, position, extent)
        for partition, position in query.positions.items()
        if isinstance(extent := extents[(partition.topic, partition.number)], Extent)
    }
    requested = record_times_to_read(
        samples, before=query.before, readings=query.readings, limit=MAX_TIMESTAMP_READS
    )
    times: dict[Partition, BatchTime] = {}
    for route in {partition.route for partition in requested}:
        of_route = [partition for partition in requested if partition.route == route]
        offsets = {(asked.topic, asked.number): query.positions[asked] for asked in of_route}
        found = reader.batch_times(offsets)
        times |= {
            asked: found[(asked.topic, asked.number)]
            for asked in of_route
            if (asked.topic, asked.number) in found
        }
    lifetimes = reader.lifetimes(list(query.wanted)) if query.lifetimes else None
    return _LogResult(extents, requested, times, lifetimes, _holders(reader, query.held))


def _holders(
    reader: LogReader, keys: Sequence[TopicPartition]
) -> dict[TopicPartition, OpenTransaction | PartitionUnavailable | None]:
    """A cluster that names no transactions has its figures nevertheless."""
    if not keys:
        return {}
    try:
        return {**dict.fromkeys(keys), **reader.open_transactions(keys)}
    except ClusterUnavailable as error:
        return dict.fromkeys(keys, PartitionUnavailable(str(error)))


def _partitions(key: TopicKey, intent: TopicIntent) -> list[Partition]:
    return [Partition(key.route, key.topic, number) for number in range(intent.partitions)]


def _is_whitelisted(partition: Partition, topics: IntentsByKey) -> bool:
    intent = topics.get(partition.key)
    return intent is not None and partition.number < intent.partitions


def _position(
    positions: Positions, partition: Partition, intent: TopicIntent
) -> int | OperatingError | None:
    """None: never committed."""
    found = positions[partition.route]
    if isinstance(found, OperatingError):
        return found
    stored = found.get((intent.target_topic, partition.number))
    if isinstance(stored, PartitionUnavailable):
        return stored
    return stored.offset if stored is not None and stored.offset >= 0 else None


def _unknown(
    route: Route, position: int | OperatingError | None, extent: Extent | OperatingError
) -> PartitionLag:
    """Figures of the cluster that responded, and the error of the other one."""
    errors = [
        f"{cluster}: {end}"
        for cluster, end in ((route.target, position), (route.source, extent))
        if isinstance(end, OperatingError)
    ]
    return PartitionLag(
        position=position if isinstance(position, int) else None,
        start=extent.start if isinstance(extent, Extent) else None,
        end=extent.end if isinstance(extent, Extent) else None,
        reason="; ".join(errors),
    )


def _near_retention(partitions: Mapping[int, PartitionLag]) -> dict[int, float]:
    return {
        number: lag.retention_s
        for number, lag in partitions.items()
        if lag.retention_s is not None and lag.retention_s < RETENTION_WARNING_S
    }
