"""Decisions of a cutover: what was read and the time in, the next content of its node out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ureplicator_common.cutovers import (
    MAX_NAMED,
    MAX_TURNS,
    Cutover,
    CutoverRequest,
    CutoverState,
    LateWrite,
    Offsets,
    Step,
    Turn,
    Wanted,
)
from ureplicator_common.kafka import Extent, PartitionUnavailable, PositionOrError
from ureplicator_common.kafka.groups import TopicPartition
from ureplicator_controller.core.cutover.states import AT_REST, BEFORE_OPEN, NEXT

Extents = Mapping[TopicPartition, Extent | PartitionUnavailable]
Producers = Mapping[TopicPartition, tuple[int, ...]]
NO_PRODUCERS: Producers = {}
MAX_STEPS = 40
"""Steps in a node: four times as many as there are states."""
MAX_CONTROL_RECORDS = 10
"""Control records that may be added to a partition between two looks: one for each open transaction."""


def next_run(request: CutoverRequest, before: Cutover | None) -> Cutover | None:
    """The run that a request begins, or the present one, to be aborted; None: nothing changes.

    Each request is a run of its own, but for an abort: that has the run that it ends, unless it is OPEN. So a
    rehearsal that has ended does not begin again.
    """
    if before is None or (before.run != request.run and _may_end(before)):
        if request.wanted is Wanted.ABORT:
            return None
        return Cutover(
            run=request.run,
            plan=request.plan,
            wanted=request.wanted,
            fences={} if before is None else before.fences,
            turns=() if before is None else before.turns,
        )
    is_abort = before.run == request.run and request.wanted is Wanted.ABORT
    if not is_abort or before.wanted is Wanted.ABORT or before.state not in BEFORE_OPEN:
        return None
    return replace(before, wanted=Wanted.ABORT, reason="requested by an operator")


def _may_end(cutover: Cutover) -> bool:
    """True if another run may take the place of this one: nothing is left half done."""
    is_idle = cutover.state is CutoverState.PLANNED and not cutover.fencing
    return cutover.state in AT_REST or cutover.state is CutoverState.WATCHED or is_idle


def reached(cutover: Cutover, state: CutoverState, now_ms: int, **changes: Any) -> Cutover:
    """The cutover in its next state, with the time that the step took. Writes behind the fence may bring it
    back again and again: the last steps are kept."""
    assert state in NEXT[cutover.state], f"{cutover.state} -> {state}"
    since_ms = cutover.steps[-1].at_ms if cutover.steps else cutover.fenced_ms or now_ms
    step = Step(state, now_ms, max(0, now_ms - since_ms))
    steps = (*cutover.steps, step)[-MAX_STEPS:]
    return replace(cutover, state=state, steps=steps, waits=(), **changes)


def given_up(cutover: Cutover, reason: str) -> Cutover:
    """The cutover as it is to be aborted."""
    assert cutover.state in BEFORE_OPEN, cutover.state
    return replace(cutover, wanted=Wanted.ABORT, reason=reason)


def waiting(cutover: Cutover, waits: Sequence[str]) -> Cutover:
    named = tuple(waits[:MAX_NAMED])
    more = (f"and {len(waits) - MAX_NAMED} more",) if len(waits) > MAX_NAMED else ()
    return replace(cutover, waits=(*named, *more))


def is_overdue(cutover: Cutover, now_ms: int) -> bool:
    """True if clients have been kept from writing for longer than the plan allows."""
    is_blocked = cutover.state in BEFORE_OPEN and cutover.fencing
    return is_blocked and now_ms - cutover.fenced_ms > cutover.plan.limit_s * 1_000


# Ends of the logs.


class Ends(NamedTuple):
    """Ends of logs with all that lies behind open transactions. `unknown`: why those of some partitions are
    not known; `held`: partitions with an open transaction."""

    offsets: Offsets
    unknown: tuple[str, ...]
    held: tuple[str, ...] = ()


def ends_of(topics: Mapping[str, int], extents: Extents) -> Ends:
    offsets: dict[str, tuple[int, ...]] = {}
    unknown: list[str] = []
    for topic, partitions in topics.items():
        found = [extents.get((topic, number)) for number in range(partitions)]
        unknown += [
            f"{topic}/{number}: {extent or 'its end is not known'}"
            for number, extent in enumerate(found)
            if not isinstance(extent, Extent)
        ]
        offsets[topic] = tuple(
            extent.end + extent.held if isinstance(extent, Extent) else -1 for extent in found
        )
    held = tuple(
        f"{topic}/{number}"
        for topic, partitions in topics.items()
        for number in range(partitions)
        if isinstance(extent := extents.get((topic, number)), Extent) and extent.held
    )
    return Ends(offsets, tuple(unknown), held)


def moved_ends(
    cutover: Cutover,
    now: Ends,
    now_ms: int,
    producers: Producers = NO_PRODUCERS,
    *,
    is_alarm: bool = False,
) -> Cutover:
    """The cutover with the writes that have passed its fence, and with the ends behind them. An alarm is what
    was written after `OPEN`: nothing copies it any more. Control records by which transactions end are no
    writes."""
    moved = [
        LateWrite(topic, number, first, end, producers.get((topic, number), ()), now_ms, is_alarm)
        for topic, ends in now.offsets.items()
        for number, (first, end) in enumerate(zip(cutover.ends[topic], ends, strict=True))
        if end > first
    ]
    held = tuple(sorted({*cutover.held, *now.held}))
    if not moved and held == cutover.held:
        return cutover
    late = [each for each in moved if not _may_be_control(each, held)]
    reached = {
        topic: tuple(map(max, cutover.ends[topic], ends)) for topic, ends in now.offsets.items()
    }
    return replace(
        cutover,
        ends=reached,
        held=held,
        late=(*cutover.late, *late)[:MAX_NAMED],
        late_offsets=cutover.late_offsets + sum(each.next - each.first for each in late),
    )


def _may_be_control(moved: LateWrite, held: tuple[str, ...]) -> bool:
    is_held = f"{moved.topic}/{moved.partition}" in held
    return is_held and moved.next - moved.first <= MAX_CONTROL_RECORDS


def undrained(
    cutover: Cutover,
    positions: Mapping[TopicPartition, PositionOrError],
    targets: Mapping[str, str],
) -> tuple[str, ...]:
    """Partitions whose position has not reached the source's end, in words. `targets`: names of the topics at
    the target, by which positions are stored."""
    waits: list[str] = []
    for topic, ends in cutover.ends.items():
        for number, end in enumerate(ends):
            position = positions.get((targets[topic], number))
            if end == 0:
                continue
            if position is None or isinstance(position, PartitionUnavailable):
                waits.append(f"{topic}/{number}: {position or 'its position is not known'}")
            elif position.offset < end:
                left = end - max(position.offset, 0)
                waits.append(f"{topic}/{number}: {left} offsets are not copied yet")
    return tuple(waits)


def held_back(extents: Extents) -> tuple[str, ...]:
    """Partitions whose end an open transaction holds, in words."""
    return tuple(
        f"{topic}/{number}: an open transaction holds {extent.held} offsets from {extent.end} on"
        for (topic, number), extent in sorted(extents.items(), key=lambda each: each[0])
        if isinstance(extent, Extent) and extent.held
    )


def opened(cutover: Cutover, there: Offsets, now_ms: int) -> Cutover:
    """The decision: clients go on at the target, whose ends are `there`."""
    turn = Turn(cutover.plan.route, cutover.ends, there)
    turns = (*cutover.turns, turn)[-MAX_TURNS:] if cutover.plan.way_back else ()
    return reached(cutover, CutoverState.OPEN, now_ms, turns=turns)
