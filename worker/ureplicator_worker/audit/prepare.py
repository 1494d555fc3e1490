"""Preparation of an audit: settings, logs and positions, read once, as an AuditRequest."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from ureplicator_common.errors import OperatingError, PermanentError
from ureplicator_common.kafka import (
    Extent,
    LogReader,
    PartitionUnavailable,
    PositionReader,
    TopicAdmin,
    TopicInfo,
)
from ureplicator_common.kafka.transactions.position_rows import readable, unreadable
from ureplicator_common.kafka.transactions.visibility import wait_until_visible
from ureplicator_common.model import Route, RouteSettings, position_group
from ureplicator_worker.audit.core.claims import claim_of
from ureplicator_worker.audit.result import (
    NO_OFFSET,
    AuditOptions,
    AuditRequest,
    PartitionRange,
)

T = TypeVar("T")

CONFIGS_TIMEOUT_S = 10.0
MAX_HELD = 20
"""Partitions that notes name."""
NO_POSITION = "the route has no committed position, and the source has records"


@dataclass(frozen=True, slots=True)
class Bound:
    """Begin or end of an audit: a source offset, or a time."""

    offset: int = NO_OFFSET
    timestamp_ms: int = NO_OFFSET


@dataclass(frozen=True, slots=True)
class Wanted:
    """`target_topic`: "" for the name by the settings. `numbers`: partitions; empty for all. Without bounds
    from the start of the log to the position."""

    fleet: str
    route: Route
    topic: str
    settings: RouteSettings
    target_topic: str = ""
    numbers: Collection[int] = ()
    first: Bound | None = None
    end: Bound | None = None


def prepare(
    wanted: Wanted,
    options: AuditOptions,
    *,
    source: TopicAdmin,
    target: TopicAdmin,
    logs: LogReader,
    copies: LogReader,
    positions: PositionReader,
    pause: Callable[[float], None] = time.sleep,
) -> AuditRequest:
    """`options` for rates and limits; the rest of them is filled in. `logs`, `copies`: of source and target.

    Raises OperatingError, also if the copy cannot be read up to the positions.
    """
    topic, settings = wanted.topic, wanted.settings
    copy = wanted.target_topic or settings.target_topic(topic)
    original = found_topic(source, topic, wanted.route.source)
    copied = found_topic(target, copy, wanted.route.target)
    count = original.partitions
    numbers = sorted(set(wanted.numbers)) or range(count)
    if wrong := [number for number in numbers if not 0 <= number < count]:
        raise PermanentError(f"{topic} has no partition {wrong[0]}: it has {count}")
    group = position_group(fleet=wanted.fleet, route=wanted.route)
    found = positions.read(group, {copy: numbers})
    stored = readable(found)
    wait_until_visible(stored, copies, pause=pause)
    hidden = {number: f"target: {why}" for (_, number), why in unreadable(found).items()}
    ends = {
        number: position.offset for (_, number), position in stored.items() if position.offset >= 0
    }
    extents = {number: extent for (_, number), extent in logs.extents({topic: numbers}).items()}
    unknown = [number for number in numbers if number not in ends and number not in hidden]
    uncopied = _with_records({number: extents[number] for number in unknown})
    firsts = _resolved(wanted.first, topic, numbers, logs)
    limits = _resolved(wanted.end, topic, numbers, logs)
    known = options_of(options, settings, configs(source, topic), configs(target, copy))
    return AuditRequest(
        route=str(wanted.route),
        topic=topic,
        target_topic=copy,
        partitions=tuple(
            PartitionRange(
                number,
                min(ends.get(number, 0), limits.get(number, ends.get(number, 0))),
                firsts.get(number, NO_OFFSET),
                uncompared=hidden.get(number) or (NO_POSITION if number in uncopied else ""),
                log_start=_start(extents[number]),
                claim=claim_of(stored.get((copy, number))),
            )
            for number in numbers
        ),
        options=known,
        not_comparable=transformed(settings, topic) or ambiguous(known),
        source_topic_id=original.topic_id,
        target_topic_id=copied.topic_id,
        notes=tuple(held_notes(extents)),
    )


def held_notes(extents: Mapping[int, Extent | PartitionUnavailable]) -> Iterator[str]:
    """Partitions of the source whose last records are not seen: they are not committed, and not copied."""
    held = {n: log for n, log in extents.items() if isinstance(log, Extent) and log.held}
    for number, log in sorted(held.items())[:MAX_HELD]:
        yield (
            f"partition {number}: {log.held} offsets behind {log.end} are held by an open transaction at"
            " the source: not compared"
        )
    if len(held) > MAX_HELD:
        yield f"{len(held) - MAX_HELD} more partitions are held by open transactions"


def _with_records(found: Mapping[int, Extent | PartitionUnavailable]) -> Collection[int]:
    """Partitions whose log has records."""
    for extent in found.values():
        if isinstance(extent, PartitionUnavailable):
            raise extent
    return {
        number
        for number, extent in found.items()
        if isinstance(extent, Extent) and extent.start < extent.end
    }


def _start(extent: Extent | PartitionUnavailable) -> int:
    """0 where it cannot be known: the comparison says why."""
    return extent.start if isinstance(extent, Extent) else 0


def found_topic(admin: TopicAdmin, topic: str, cluster: str) -> TopicInfo:
    """Raises OperatingError: there is no such topic."""
    return known_topic(admin.find([topic]).get(topic), topic, cluster)


def known_topic(info: TopicInfo | None, topic: str, cluster: str) -> TopicInfo:
    """`info`: what the cluster says of the topic. Raises OperatingError: there is no such topic."""
    if info is None or info.error:
        why = info.error if info else "there is no such topic"
        raise PermanentError(f"{topic} at {cluster}: {why}")
    return info


def configs(admin: TopicAdmin, topic: str) -> Mapping[str, str]:
    """Settings of a topic as they are in force now. Raises OperatingError."""
    return read(admin.effective_configs([topic], timeout_s=CONFIGS_TIMEOUT_S)[topic])


def read(found: T | OperatingError) -> T:
    """One of the results of a call for many. Raises OperatingError: it could not be read."""
    if isinstance(found, OperatingError):
        raise found
    return found


def options_of(
    options: AuditOptions,
    settings: RouteSettings,
    source: Mapping[str, str],
    target: Mapping[str, str],
) -> AuditOptions:
    """`options` with what follows from the route, and from the settings of both topics."""
    return replace(
        options,
        delivery=settings.delivery,
        start=settings.start,
        source_compacted=_is_compacted(source),
        target_compacted=_is_compacted(target),
        timestamps=target.get("message.timestamp.type") != "LogAppendTime",
    )


def _is_compacted(configs: Mapping[str, str]) -> bool:
    return "compact" in configs.get("cleanup.policy", "")


def transformed(settings: RouteSettings, topic: str) -> str:
    """Reason why the copy is not meant to be equal; "" if it is."""
    transform = settings.transform(topic)
    return f"its records go through {transform.description}" if transform is not None else ""


def ambiguous(options: AuditOptions) -> str:
    """Reason why the copy cannot be compared though it is meant to be equal; "" if it can."""
    if options.timestamps or not (options.source_compacted or options.target_compacted):
        return ""
    return "it is compacted and the target stamps records itself: equal records cannot be distinguished"


def _resolved(
    bound: Bound | None, topic: str, numbers: Collection[int], logs: LogReader
) -> Mapping[int, int]:
    if bound is None:
        return {}
    if bound.offset != NO_OFFSET:
        return dict.fromkeys(numbers, bound.offset)
    found = logs.offsets_at({(topic, n): bound.timestamp_ms for n in numbers})
    offsets = {}
    for (_, number), offset in found.items():
        if isinstance(offset, PartitionUnavailable):
            raise offset
        offsets[number] = offset
    return offsets
