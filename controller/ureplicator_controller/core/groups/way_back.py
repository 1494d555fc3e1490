"""The way back of a group: from the target of a route to its source, by the same offset map. Pure.

The decisions are those of the way there (`decisions`), with both clusters changed over: the group's offset at
the target is translated backward, bounded by the source's log, and never lowers an offset at the source.

    target  | copied records ................. end | records that others have produced there
    source  | the same records ......... position  | not copied yet: read next

A group that has read everything that was copied goes on at the position, wherever it is behind the end:
markers of transactions are there, and records that were produced at the target, which the source never had.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from ureplicator_common.kafka import Extent
from ureplicator_common.kafka.groups import TopicPartition
from ureplicator_controller.core.groups.decisions import (
    CopiedPartition,
    source_offset,
    translated_offset,
)
from ureplicator_controller.core.groups.topics import RouteTopic


def reversed_topics(topics: Mapping[str, RouteTopic]) -> Mapping[str, RouteTopic]:
    """The same topics by their names at the other end. Applied twice it changes nothing."""
    return {
        each.target: replace(each, source=each.target, target=each.source)
        for each in topics.values()
    }


def reversed_partition(
    copied: CopiedPartition, partition: TopicPartition, log: Extent | None, *, reason: str = ""
) -> CopiedPartition:
    """A copied partition as groups of the target see it. `partition`, `log`: of the source; `reason`: why the
    log is not known."""
    known = copied.position is not None and copied.log is not None
    return CopiedPartition(
        target=partition,
        position=copied.log.end if known and copied.log is not None else None,
        translate=partial(source_offset, copied),
        translate_back=partial(_target_offset, copied),
        log=log,
        reason=copied.reason or reason,
    )


def _target_offset(copied: CopiedPartition, offset: int) -> int | None:
    """Target offset that a group has reached that goes on at this offset of the source."""
    if copied.position is not None and copied.log is not None and offset >= copied.position:
        return copied.log.end
    return translated_offset(copied, offset)
