"""Positions for operators: read from both clusters, and set or forgotten on request.

A request is checked against the source, and its offset is written into the topic's intent. The leader
takes the partition from its worker, commits the offset, and lets the partition start again
(`core.positions.changes`). So the response has the very offset, and a later attempt means the same.

Each call connects to the clusters and reads them: what it shows and decides on is of this moment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TypeVar

from ureplicator_common.clock import Clock
from ureplicator_common.config.route import RouteConfig
from ureplicator_common.kafka import (
    Extent,
    LogReader,
    PartitionUnavailable,
    Position,
    PositionOrError,
    PositionReader,
)
from ureplicator_common.kafka.client import EARLIEST, LATEST
from ureplicator_common.kafka.transactions.position_rows import all_readable
from ureplicator_common.model import TopicKey, position_group
from ureplicator_common.znode_contents import NO_OFFSET, PositionChange, TopicIntent
from ureplicator_controller.api.http.models.positions import SetPositionsBody
from ureplicator_controller.api.http.preconditions import Precondition
from ureplicator_controller.api.http.problems import Problem, bad_request, conflict, not_found
from ureplicator_controller.api.services.fleet_cache import FleetCache
from ureplicator_controller.api.services.intents import IntentStore
from ureplicator_controller.api.services.topic_checks import (
    require_changeable,
    require_partition,
)
from ureplicator_controller.core.positions.effects import PositionEffect, effect_of
from ureplicator_controller.core.syncs.topics import route_settings

T = TypeVar("T", int, Extent, Position)


@dataclass(frozen=True, slots=True)
class PositionReading:
    """One partition as both clusters have it now."""

    stored: PositionOrError
    extent: Extent | PartitionUnavailable


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """A change of one partition's position (None: forgotten), and its effect."""

    position: int | None
    effect: PositionEffect


class PositionService:
    """Every call may raise Problem, Unavailable and ClusterUnavailable. `positions` and `logs` connect to
    a cluster by its name."""

    def __init__(
        self,
        *,
        fleet: FleetCache,
        intents: IntentStore,
        positions: Callable[[str], PositionReader],
        logs: Callable[[str], LogReader],
        clock: Clock,
        new_id: Callable[[], str],
    ) -> None:
        self._fleet = fleet
        self._intents = intents
        self._positions = positions
        self._logs = logs
        self._clock = clock
        self._new_id = new_id

    def read(
        self, key: TopicKey, intent: TopicIntent, numbers: Sequence[int]
    ) -> dict[int, PositionReading]:
        """Positions first: the end of a log only grows, so no position is ahead of it."""
        group = position_group(fleet=self._fleet.paths.fleet, route=key.route)
        with closing(self._positions(key.route.target)) as reader:
            stored = reader.read(group, {intent.target_topic: numbers})
        with closing(self._logs(key.route.source)) as logs:
            extents = logs.extents({key.topic: numbers})
        return {
            number: PositionReading(stored[intent.target_topic, number], extents[key.topic, number])
            for number in numbers
        }

    def set(
        self,
        config: RouteConfig,
        topic: str,
        wanted: SetPositionsBody,
        *,
        dry_run: bool,
        condition: Precondition,
    ) -> dict[int, PlannedChange]:
        """Set the positions of a topic, or of one partition: all of them, or none if one is refused."""
        wanted.require_one()
        key = TopicKey(config.route, topic)
        intent = self._changeable(key, condition)
        numbers = partition_numbers(key, intent, wanted.partition)
        planned = self._planned(key, intent, wanted, numbers)
        if not dry_run:
            _require_possible(key, planned, wanted)
            self._request(key, planned, condition)
        return planned

    def forget(
        self,
        config: RouteConfig,
        topic: str,
        number: int | None,
        *,
        dry_run: bool,
        condition: Precondition,
    ) -> dict[int, PlannedChange]:
        """Forget the positions of a topic, or of one partition: it begins at the route's `start`."""
        key = TopicKey(config.route, topic)
        intent = self._changeable(key, condition)
        numbers = partition_numbers(key, intent, number)
        times = self._start_times(config, intent, numbers)
        starts = self._offsets_at(key, times)
        readings = self.read(key, intent, numbers)
        planned = {
            number: PlannedChange(
                None, effect_of(_offset(reading.stored), starts[number], _known(reading.extent))
            )
            for number, reading in readings.items()
        }
        if not dry_run:
            self._request(key, planned, condition)
        return planned

    def _changeable(self, key: TopicKey, condition: Precondition) -> TopicIntent:
        found = self._intents.find(key, condition)
        return _not_stopped(key, require_changeable(key, found, self._intents.known))

    def _planned(
        self,
        key: TopicKey,
        intent: TopicIntent,
        wanted: SetPositionsBody,
        numbers: Sequence[int],
    ) -> dict[int, PlannedChange]:
        """Offsets first: the end of a log only grows, so none of them is behind it."""
        found = self._found_offsets(key, wanted, numbers)
        readings = self.read(key, intent, numbers)
        offsets = found or _wanted_offsets(wanted, readings)
        planned: dict[int, PlannedChange] = {}
        for number, reading in readings.items():
            effect = effect_of(_offset(reading.stored), offsets[number], _known(reading.extent))
            if offsets[number] == NO_OFFSET:
                why = f"group {wanted.group} has no offset for it"
                effect = replace(effect, repeated=None, skipped=None, refused=why)
            planned[number] = PlannedChange(offsets[number], effect)
        return planned

    def _found_offsets(
        self, key: TopicKey, wanted: SetPositionsBody, numbers: Sequence[int]
    ) -> Mapping[int, int]:
        """Offsets of a consumer group, or of a time; empty if neither is wanted."""
        if wanted.group is not None:
            return self._group_offsets(key, wanted.group, numbers)
        if wanted.time is None:
            return {}
        if wanted.time_ms > self._clock.wall_ms():
            raise bad_request(
                f"{wanted.time} is in the future",
                field="time",
                hint="give latest to begin at the next record",
            )
        return self._offsets_at(key, dict.fromkeys(numbers, wanted.time_ms))

    def _group_offsets(
        self, key: TopicKey, group: str, numbers: Sequence[int]
    ) -> Mapping[int, int]:
        """Committed offsets of a consumer group of the source; -1 where it has none."""
        with closing(self._positions(key.route.source)) as reader:
            found = all_readable(reader.read(group, {key.topic: numbers}))
        if all(position.offset < 0 for position in found.values()):
            raise not_found(
                f"group {group} has no offsets of {key.topic} on {key.route.source}",
                field="group",
                hint="check the name of the group, and its offsets on the source cluster",
            )
        return {number: found[key.topic, number].offset for number in numbers}

    def _start_times(
        self, config: RouteConfig, intent: TopicIntent, numbers: Sequence[int]
    ) -> Mapping[int, int]:
        """Times at which partitions without a position begin: see the worker's start positions."""
        snapshot = self._fleet.current().snapshot
        settings = route_settings(snapshot, config.route, config.settings)
        named = {"earliest": EARLIEST, "latest": LATEST}
        start = named[settings.start] if settings.start in named else int(settings.start)
        return {n: start if n < intent.initial_partitions else EARLIEST for n in numbers}

    def _offsets_at(self, key: TopicKey, times_ms: Mapping[int, int]) -> dict[int, int]:
        with closing(self._logs(key.route.source)) as logs:
            wanted = {(key.topic, number): time_ms for number, time_ms in times_ms.items()}
            found = logs.offsets_at(wanted)
        return {number: _known(found[key.topic, number]) for number in times_ms}

    def _request(
        self, key: TopicKey, planned: Mapping[int, PlannedChange], condition: Precondition
    ) -> None:
        request = self._new_id()
        changes = {
            number: PositionChange(NO_OFFSET if new.position is None else new.position, request)
            for number, new in planned.items()
        }

        def change(now: TopicIntent) -> TopicIntent:
            return replace(_not_stopped(key, now), positions={**now.positions, **changes})

        self._intents.change(key, change, condition)


def _wanted_offsets(
    wanted: SetPositionsBody, readings: Mapping[int, PositionReading]
) -> Mapping[int, int]:
    if wanted.offset is not None:
        return dict.fromkeys(readings, wanted.offset)
    extents = {number: _known(reading.extent) for number, reading in readings.items()}
    first = wanted.to == "earliest"
    return {n: extent.start if first else extent.end for n, extent in extents.items()}


def partition_numbers(key: TopicKey, intent: TopicIntent, number: int | None) -> Sequence[int]:
    """One partition, or all of the topic. Raises Problem."""
    if number is None:
        return range(intent.partitions)
    require_partition(key, intent, number)
    return [number]


def _not_stopped(key: TopicKey, intent: TopicIntent) -> TopicIntent:
    """Raises Problem for a stopped topic: its offsets may be of the former topic or of the present one."""
    if intent.stopped:
        raise conflict(
            f"{key.topic} was stopped: {intent.stopped}",
            field="topic",
            hint="decide first how it goes on: restart or delete the topic",
        )
    return intent


def _require_possible(
    key: TopicKey, planned: Mapping[int, PlannedChange], wanted: SetPositionsBody
) -> None:
    """Raises Problem, with the first partition that is refused."""
    refused = {n: new.effect.refused for n, new in planned.items() if new.effect.refused}
    if not refused:
        return
    number, why = min(refused.items())
    more = f" (and {len(refused) - 1} more partitions)" if len(refused) > 1 else ""
    text = f"{key.topic}/{number}: {why}{more}"
    hint = "nothing was changed; a dry run shows each partition"
    raise _refusal(text, wanted, hint)


def _refusal(text: str, wanted: SetPositionsBody, hint: str) -> Problem:
    """An offset that cannot be is a wrong request; what a group has committed is a state."""
    if wanted.group is None:
        return bad_request(text, field="offset", hint=hint)
    return conflict(text, field="group", hint=hint)


def _offset(stored: PositionOrError) -> int | None:
    """Raises PartitionUnavailable."""
    offset = _known(stored).offset
    return offset if offset >= 0 else None


def _known(found: T | PartitionUnavailable) -> T:
    """Raises PartitionUnavailable."""
    if isinstance(found, PartitionUnavailable):
        raise found
    return found
