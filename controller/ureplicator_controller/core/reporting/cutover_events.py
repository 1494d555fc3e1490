"""Events of cutovers: the first time that a run reaches each state, and writes that nothing copies."""

from __future__ import annotations

from collections.abc import Iterator

from ureplicator_common.cutovers import Cutover, CutoverState, Step
from ureplicator_common.model import EventKind, Partition
from ureplicator_common.znode_contents import PastEvent
from ureplicator_controller.core.state.snapshot import Snapshot


def cutover_events(before: Snapshot, now: Snapshot) -> Iterator[PastEvent]:
    for name, stored in sorted(now.cutovers.items()):
        former = before.cutovers.get(name)
        if former is not None and former.mzxid == stored.mzxid:
            continue
        cutover = stored.value
        is_same = former is not None and former.value.run == cutover.run
        known = former.value if former is not None and is_same else None
        request = now.cutover_requests.get(name)
        by = request.value.request_id if request is not None else ""
        seen = {step.state for step in known.steps} if known else set()
        for step in cutover.steps:
            if step.state not in seen:
                seen.add(step.state)
                reason = _described(name, cutover, step)
                yield PastEvent(0, EventKind.CUTOVER, reason, step.at_ms, request=by)
        for late in cutover.late[len(known.late) if known else 0 :]:
            if late.is_alarm:
                yield PastEvent(
                    0,
                    EventKind.CUTOVER,
                    f"cutover {name}: written at {cutover.plan.route.source} behind OPEN, and not copied",
                    late.at_ms,
                    partition=Partition(cutover.plan.route, late.topic, late.partition),
                    first_offset=late.first,
                    next_offset=late.next,
                )


def _described(name: str, cutover: Cutover, step: Step) -> str:
    """`cutover move of west.east: DRAINED after 0.42 s`."""
    took = f"{step.state} after {step.took_ms / 1_000:.2f} s"
    why = f": {cutover.reason}" if step.state is CutoverState.ABORTED and cutover.reason else ""
    return f"cutover {name} of {cutover.plan.route}: {took}{why}"
