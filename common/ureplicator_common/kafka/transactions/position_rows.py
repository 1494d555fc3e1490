"""Rows of requests to coordinators: positions and error codes by target partition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

from ureplicator_common.kafka import PartitionUnavailable, Position, PositionOrError
from ureplicator_common.kafka.errors import OF_A_PARTITION, refusal
from ureplicator_common.portions import portions

POSITIONS_PER_REQUEST = 500
"""A coordinator writes the positions of one request as one batch, of 1 MiB by default at most: with the
longest names a position takes about 1 KiB. A larger request is refused as a whole, at each retry."""

T = TypeVar("T")
TargetPartition = tuple[str, int]


def by_partition(
    codes: Mapping[TargetPartition, int], *, right: str, cluster: str
) -> tuple[set[int], dict[TargetPartition, str]]:
    """Codes that concern all of a request, and the partitions that were refused by themselves. `right`: on
    each topic, that the request needs."""
    return set(codes.values()) - OF_A_PARTITION, {
        key: refusal(code, f"{right} on topic {key[0]}", cluster)
        for key, code in codes.items()
        if code in OF_A_PARTITION
    }


def readable(found: Mapping[TargetPartition, PositionOrError]) -> dict[TargetPartition, Position]:
    """Positions without those that the cluster does not show."""
    return {key: position for key, position in found.items() if isinstance(position, Position)}


def unreadable(
    found: Mapping[TargetPartition, PositionOrError],
) -> dict[TargetPartition, PartitionUnavailable]:
    """Partitions that the cluster does not show, with the reasons."""
    return {
        key: reason for key, reason in found.items() if isinstance(reason, PartitionUnavailable)
    }


def all_readable(
    found: Mapping[TargetPartition, PositionOrError],
) -> Mapping[TargetPartition, Position]:
    """Positions of a single topic, all of them. Raises PartitionUnavailable, that of the first
    partition with one."""
    errors = unreadable(found)
    if errors:
        raise errors[min(errors)]
    return readable(found)


def in_requests(positions: Mapping[TargetPartition, T]) -> Iterator[dict[TargetPartition, T]]:
    for keys in portions(list(positions), POSITIONS_PER_REQUEST):
        yield {key: positions[key] for key in keys}


def rows_by_topic(positions: Mapping[TargetPartition, Position]) -> dict[str, dict[int, Position]]:
    by_topic: dict[str, dict[int, Position]] = {}
    for (topic, number), position in positions.items():
        by_topic.setdefault(topic, {})[number] = position
    return by_topic
