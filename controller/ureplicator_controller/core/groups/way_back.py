"""The way back of a group: from the target of a route to its source, by the same offset map. Pure.

The decisions are those of the way there (`decisions`), with both clusters changed over: the group's offset at
the target is translated backward, bounded by the source's log, and never lowers an offset at the source.

    target  | copied records ................. end | copies without a position yet, markers, records of others
    source  | the same records ......... position  | read next

A group that has read everything up to the end goes on at the position. Behind the end there may be copies
whose position is not committed yet: a group that has read them would read them once more at the source. So it
waits for the copy until the position has passed them, unless there are none for certain:

- the position has reached the end of the source. Then only markers of transactions lie behind the end, and
  records that were produced at the target, which the source never had;
- exactly once, one offset: the marker of the transaction that has committed the position.
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
        topic.target: replace(topic, source=topic.target, target=topic.source)
        for topic in topics.values()
    }


def reversed_partition(
    copied: CopiedPartition,
    partition: TopicPartition,
    log: Extent | None,
    *,
    exactly_once: bool,
    reason: str = "",
) -> CopiedPartition:
    """A copied partition as groups of the target see it. `partition`, `log`: of the source, the log read
    after the position; `exactly_once`: delivery of the route; `reason`: why the log is not known. Open
    transactions at the target hold nothing back: most are those of the copy."""
    reached = _reached(copied, log, exactly_once=exactly_once)
    return CopiedPartition(
        target=partition,
        position=reached,
        translate=partial(source_offset, copied),
        translate_back=partial(_target_offset, copied, reached),
        log=log,
        source_log=copied.log and replace(copied.log, held=0),
        reason=copied.reason or reason,
    )


def _reached(copied: CopiedPartition, log: Extent | None, *, exactly_once: bool) -> int | None:
    """Target offset before which no copy is without a position; None unknown. Without an end at the target,
    as with handlers, the offset map alone bounds what is translated."""
    if copied.position is None or copied.log is None:
        return None
    is_all_copied = log is not None and log.end <= copied.position
    if copied.end is None or is_all_copied:
        return copied.log.end
    return min(copied.log.end, copied.end + exactly_once)


def _target_offset(copied: CopiedPartition, reached: int | None, offset: int) -> int | None:
    """Target offset that a group has reached that goes on at this offset of the source."""
    if reached is not None and copied.position is not None and offset >= copied.position:
        return reached
    return translated_offset(copied, offset)
