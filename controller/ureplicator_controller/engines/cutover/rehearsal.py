"""Rehearsal of a cutover: everything but the fence and the opening, against the live clusters.

It measures how long each step takes now: the copy has to reach the ends that the source has at the beginning.
"""

from __future__ import annotations

from dataclasses import replace

from ureplicator_common.clock import Clock
from ureplicator_common.cutovers import Cutover, CutoverState, Wanted
from ureplicator_common.errors import PermanentError
from ureplicator_controller.core.cutover.progress import waiting
from ureplicator_controller.core.state.snapshot import Snapshot
from ureplicator_controller.engines.cutover.groups import unfinished
from ureplicator_controller.engines.cutover.moving import Moving, unfit_topics


class Rehearsal:
    """The rehearsal of one run, as far as this leader has come with it."""

    def __init__(self, run: str, *, clock: Clock) -> None:
        self.run = run
        self._clock = clock
        self._at_s = clock.monotonic_s()
        self._began_s = self._at_s
        self._took_ms: dict[str, int] = {}
        self._ends: Cutover | None = None

    def step(self, moving: Moving, cutover: Cutover, snapshot: Snapshot) -> Cutover:
        """The cutover with the times, or with what the rehearsal waits for. Raises OperatingError."""
        unfit = unfit_topics(snapshot, cutover.plan.route, cutover.plan.topics)
        if unfit:
            return self._ended(cutover, unfit)
        try:
            return self._step(moving, cutover, snapshot)
        except PermanentError as error:
            return self._ended(cutover, str(error))

    def _step(self, moving: Moving, cutover: Cutover, snapshot: Snapshot) -> Cutover:
        if self._ends is None:
            refused = moving.look_at_fence(cutover)
            found = moving.ends(cutover)
            if refused or found.unknown:
                return self._ended(cutover, refused or found.unknown[0])
            self._ends = replace(cutover, ends=found.offsets)
            self._count(CutoverState.FENCED)
        left = moving.behind(self._ends, snapshot)
        if left:
            if self._clock.monotonic_s() - self._began_s > cutover.plan.limit_s:
                return self._ended(
                    cutover, f"not drained within {cutover.plan.limit_s:g} s: {left[0]}"
                )
            return waiting(cutover, left)
        self._count(CutoverState.DRAINED)
        differs = moving.verification(self._ends, snapshot).differs
        self._count(CutoverState.VERIFIED)
        refused_groups = unfinished(
            [each for each in moving.group_decisions(cutover, snapshot) if not each.is_pending]
        )
        self._count(CutoverState.GROUPS)
        moving.ends(cutover)
        moving.target_ends(cutover, snapshot)
        self._count(CutoverState.OPEN)
        return self._ended(cutover, next(iter((*differs, *refused_groups)), ""))

    def _count(self, state: CutoverState) -> None:
        now_s = self._clock.monotonic_s()
        self._took_ms[state] = round((now_s - self._at_s) * 1_000)
        self._at_s = now_s

    def _ended(self, cutover: Cutover, reason: str) -> Cutover:
        return replace(
            cutover, wanted=Wanted.PLAN, rehearsed_ms=self._took_ms, reason=reason, waits=()
        )
