"""What operators may ask of a cutover, by what is under way. Pure.

The leader judges again when it reads a request (`progress.next_run`): what is refused here is refused with a
reason, before anything is written.
"""

from __future__ import annotations

from dataclasses import dataclass

from ureplicator_common.cutovers import Cutover, CutoverPlan, CutoverRequest, CutoverState, Wanted
from ureplicator_controller.core.cutover.states import AT_REST, BEFORE_OPEN, DONE, OPEN, WATCHED
from ureplicator_controller.core.state.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Known:
    """A cutover as both of its nodes have it; one of them may not be there."""

    request: CutoverRequest | None = None
    cutover: Cutover | None = None

    @property
    def plan(self) -> CutoverPlan | None:
        """The plan of the last request."""
        if self.request is not None:
            return self.request.plan
        return None if self.cutover is None else self.cutover.plan

    @property
    def run(self) -> Cutover | None:
        """The run of the last request, as far as the leader has it."""
        request, cutover = self.request, self.cutover
        if request is None or cutover is None or cutover.run == request.run:
            return cutover
        return None

    @property
    def state(self) -> CutoverState:
        return CutoverState.PLANNED if self.run is None else self.run.state

    @property
    def is_starting(self) -> bool:
        """True if a start is requested that has changed nothing yet."""
        wanted = self.request is not None and self.request.wanted is Wanted.START
        return wanted and self.state is CutoverState.PLANNED

    @property
    def is_under_way(self) -> bool:
        """True while a run goes on, or is about to begin: then no other plan can be made of this name."""
        cutover = self.cutover
        if self.is_starting:
            return True
        if cutover is None or cutover.state in AT_REST or cutover.state is WATCHED:
            return False
        return cutover.fencing or cutover.state is not CutoverState.PLANNED


def known(snapshot: Snapshot, name: str) -> Known:
    request, cutover = snapshot.cutover_requests.get(name), snapshot.cutovers.get(name)
    return Known(request.value if request else None, cutover.value if cutover else None)


def names(snapshot: Snapshot) -> list[str]:
    return sorted(snapshot.cutover_requests.keys() | snapshot.cutovers.keys())


def refused_plan(found: Known) -> str:
    """Reason why no other plan can be stored or started under this name; "" if one can."""
    if not found.is_under_way:
        return ""
    if found.is_starting:
        return "it is being started"
    assert found.cutover is not None
    return f"it is under way: {found.cutover.state}"


def refused_abort(found: Known) -> str:
    """Reason why there is nothing to abort; "" if there is."""
    request, run = found.request, found.run
    is_idle = run is not None and run.wanted is Wanted.PLAN
    if request is None or request.wanted is Wanted.PLAN or is_idle:
        return "nothing of it is under way"
    state = found.state
    if state in AT_REST:
        return f"it has ended: {state}"
    if state not in BEFORE_OPEN:
        return f"clients are at the target already: {state}"
    if request.wanted is Wanted.ABORT and run is None:
        return "it has changed nothing, and was not begun"
    return ""


def refused_back(found: Known) -> str:
    """Reason why nothing can go back; "" if something can."""
    cutover = found.cutover
    if found.is_starting:
        return "it is being started"
    if cutover is None or cutover.state not in (OPEN, WATCHED, DONE):
        state = CutoverState.PLANNED if cutover is None else cutover.state
        return f"clients have not been moved: {state}"
    return "" if cutover.plan.way_back else "it was planned without a way back"
