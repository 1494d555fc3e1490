"""One example for each call of `/cutovers`: a cutover that is planned, one under way, and one that is done.

Routes go in both directions here, which the fleet of the other examples has not.
"""

from __future__ import annotations

from ureplicator_common.cutovers import (
    Cutover,
    CutoverPlan,
    CutoverRequest,
    CutoverState,
    FenceKind,
    Step,
    Wanted,
)
from ureplicator_testkit.control.cutover_fixture import CutoverRest
from ureplicator_testkit.control.rest_fixture import ROUTE
from ureplicator_testkit.docs.example_calls import NOW_S, SHOWN_ID, ExampleCall

CUTOVER_CALLS = (
    ExampleCall("GET", "/cutovers"),
    ExampleCall("GET", "/cutovers/{name}", "/cutovers/wave-1"),
    ExampleCall(
        "POST",
        "/cutovers/{name}",
        "/cutovers/wave-2?src=source",
        {"topics": ["orders.*"], "groups": ["billing"], "fence": "acl", "principal": "User:fleet"},
    ),
    ExampleCall("POST", "/cutovers/{name}/rehearse", "/cutovers/wave-2/rehearse"),
    ExampleCall("POST", "/cutovers/{name}/start", "/cutovers/wave-2/start?confirm=true"),
    ExampleCall("POST", "/cutovers/{name}/abort", "/cutovers/wave-1/abort"),
    ExampleCall("POST", "/cutovers/{name}/back", "/cutovers/wave-0/back?dry_run=true"),
)


def cutover_world() -> CutoverRest:
    """The fleet of these examples, to be closed."""
    world = CutoverRest(now_s=NOW_S)
    _put_run(world, "wave-0", "quiet", CutoverState.DONE)
    _put_run(world, "wave-1", "clicks", CutoverState.FENCED)
    world.turn("quiet", partitions=1)
    return world


def _put_run(world: CutoverRest, name: str, topic: str, state: CutoverState) -> None:
    now_ms, run = NOW_S * 1_000, f"rack-7-{SHOWN_ID}"
    plan = CutoverPlan(
        id="0d5c1b7f3a9e2468",
        route=ROUTE,
        topic_patterns=(topic,),
        topics={topic: 1},
        fence=FenceKind.NONE,
    )
    request = CutoverRequest(plan, Wanted.START, run, f"{run}/olga", now_ms - 2_000)
    is_open = state is CutoverState.DONE
    cutover = Cutover(
        run=run,
        plan=plan,
        state=state,
        wanted=Wanted.START,
        fenced_ms=now_ms - 1_400,
        opened_ms=now_ms - 200 if is_open else 0,
        fencing=True,
        steps=(Step(CutoverState.FENCED, now_ms - 1_100, 300),),
        waits=() if is_open else (f"{topic}/0: 7 offsets are not copied yet",),
    )
    world.put_request(request, name)
    world.put_cutover(cutover, name)
