"""`ureplicator cutover`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from ureplicator_cli.cutover.following import (
    Body,
    followed,
    is_idle,
    is_moved,
    is_rehearsed,
    readings,
)
from ureplicator_common.cutovers import Cutover, CutoverState, FenceKind, LateWrite, Step, Wanted
from ureplicator_common.model import TopicState
from ureplicator_common.znode_contents import TopicIntent
from ureplicator_testkit.control.command import run, serving
from ureplicator_testkit.control.cutover_fixture import CutoverRest

PLAN = ("cutover", "plan", "move", "--src", "source", "--topics", "orders")


@pytest.fixture
def url(rest: CutoverRest) -> Iterator[str]:
    with serving(rest) as url:
        yield url


def begun(rest: CutoverRest, **changes: Any) -> Cutover:
    """The run of the last request, as the leader has it."""
    request = rest.request()
    run = replace(Cutover(request.run, request.plan, wanted=request.wanted), **changes)
    rest.put_cutover(run)
    return run


def test_a_plan_is_made_and_started(rest: CutoverRest, url: str) -> None:
    planned = run(*PLAN, "--groups", "bill.*", url=url)
    assert planned.exit_code == 0
    assert "1 topics, 1 groups from source to target" in planned.stdout
    id = rest.request().plan.id
    assert f"ureplicator cutover start move --plan {id}" in planned.stdout
    started = run("cutover", "start", "move", "--plan", id, url=url)
    assert (started.exit_code, rest.request().wanted) == (0, Wanted.START)
    assert "status move --watch" in started.stdout


def test_a_start_without_an_id_is_one_of_the_stored_plan(rest: CutoverRest, url: str) -> None:
    run(*PLAN, url=url)
    assert run("cutover", "start", "move", url=url).exit_code == 0
    again = run("cutover", "start", "move", url=url)
    assert (again.exit_code, "move: it is being started" in again.stderr) == (1, True)


@pytest.mark.parametrize(
    ("words", "topics", "groups"),
    [
        (("--topics", "orders"), ["orders"], []),
        (("--topics", "orders", "quiet", "--groups", "a", "b"), ["orders", "quiet"], ["a", "b"]),
        (("--groups", "a,b", "--topics", "orders,quiet"), ["orders", "quiet"], ["a", "b"]),
        (("--topics", "orders", "--topics", "quiet"), ["orders", "quiet"], []),
        (("--topics=orders", "--topics", "o{1,2}", "--json"), ["orders", "o{1,2}"], []),
    ],
)
def test_options_have_several_values(
    rest: CutoverRest,
    url: str,
    words: tuple[str, ...],
    topics: list[str],
    groups: list[str],
) -> None:
    run("cutover", "plan", "move", "--src", "source", *words, url=url)
    plan = rest.request().plan
    assert (list(plan.topic_patterns), list(plan.group_patterns)) == (topics, groups)


def test_what_blocks_a_plan_is_exit_code_1(rest: CutoverRest, url: str) -> None:
    intent = TopicIntent(4, 4, state=TopicState.PAUSED, target_topic="orders")
    rest.put_intent("orders", intent)
    planned = run(*PLAN, "--json", url=url)
    assert (planned.exit_code, json.loads(planned.stdout)["blocked"]) == (1, True)
    assert "it is paused" in run(*PLAN, url=url).stdout


def test_a_dry_run_stores_nothing(rest: CutoverRest, url: str) -> None:
    assert run(*PLAN, "--dry-run", url=url).exit_code == 0
    assert "cutovers: none" in run("cutover", "list", url=url).stdout
    missing = run("cutover", "status", "move", url=url)
    assert missing.exit_code == 1
    assert "ureplicator cutover list lists them" in missing.stderr


def test_a_wish_is_passed_on(rest: CutoverRest, url: str) -> None:
    run(
        *PLAN,
        "--fence-command",
        "gate",
        "--no-way-back",
        "--wait-for-groups",
        "--abort-transactions",
        "--verify",
        "--limit",
        "30",
        url=url,
    )
    plan = rest.request().plan
    assert (plan.fence, plan.fence_command, plan.limit_s) == (FenceKind.COMMAND, "gate", 30.0)
    assert not plan.way_back
    assert (plan.waits_for_groups, plan.aborts_transactions, plan.verifies) == (True, True, True)
    refused = run(*PLAN, "--fence", "command", url=url)
    assert refused.stderr.startswith("--fence-command: ")


@pytest.mark.parametrize(
    "words", [("plan", "move"), ("plan", "--topics", "orders"), ("start",), ("status",)]
)
def test_wrong_usage(words: tuple[str, ...]) -> None:
    assert run("cutover", *words).exit_code == 2


def test_a_status_shows_steps_waits_and_late_writes(rest: CutoverRest, url: str) -> None:
    run(*PLAN, url=url)
    run("cutover", "start", "move", url=url)
    now_ms = rest.clock.wall_ms()
    begun(
        rest,
        state=CutoverState.FENCED,
        fencing=True,
        fenced_ms=now_ms - 1_400,
        steps=(Step(CutoverState.FENCED, now_ms - 1_100, 300),),
        waits=("orders/2: 7 offsets are not copied yet",),
        late=(LateWrite("orders", 2, 5, 12, (4_001,), now_ms),),
        late_offsets=7,
        groups={"billing": "synced"},
        rehearsed_ms={"FENCED": 250},
    )
    shown = run("cutover", "status", "move", url=url).stdout
    for text in (
        "move FENCED, writes blocked for 1.40 s, 7 offsets written past the fence",
        "0.30 s",
        "0.25 s",
        "waits: orders/2: 7 offsets are not copied yet",
        "written past the fence: orders/2 offsets 5 to 11, producers 4001",
        "synced",
    ):
        assert text in shown
    body = json.loads(run("cutover", "status", "move", "--json", url=url).stdout)
    assert (body["state"], body["steps"][0]["seconds"]) == ("FENCED", 0.3)
    listed = run("cutover", "list", url=url).stdout
    assert "FENCED" in listed
    assert run("cutover", url=url).stdout == listed


def test_a_start_waits_until_it_ends(rest: CutoverRest, url: str) -> None:
    """The leader is a step ahead: it has a run that the command then waits for."""
    run(*PLAN, url=url)
    rest.on_start = lambda: begun(
        rest, state=CutoverState.ABORTED, wanted=Wanted.ABORT, reason="group billing stays"
    )
    ended = run("cutover", "start", "move", "--wait", url=url)
    assert ended.exit_code == 1
    assert "move was aborted: group billing stays" in ended.stderr
    rest.on_start = lambda: begun(rest, state=CutoverState.WATCHED, opened_ms=5)
    ended = run("cutover", "start", "move", "--wait", "--json", url=url)
    assert (ended.exit_code, json.loads(ended.stdout)["state"]) == (0, "WATCHED")


def test_a_rehearsal_waits_for_its_times(rest: CutoverRest, url: str) -> None:
    run(*PLAN, url=url)
    rest.on_start = lambda: begun(rest, wanted=Wanted.PLAN, rehearsed_ms={"DRAINED": 125})
    ended = run("cutover", "rehearse", "move", "--wait", url=url)
    assert ended.exit_code == 0
    assert "0.12 s" in ended.stdout
    rest.on_start = lambda: begun(rest, wanted=Wanted.PLAN, reason="not drained")
    assert run("cutover", "rehearse", "move", "--wait", url=url).exit_code == 1


def test_an_abort_and_what_cannot_be_aborted(rest: CutoverRest, url: str) -> None:
    run(*PLAN, url=url)
    assert "nothing of it is under way" in run("cutover", "abort", "move", url=url).stderr
    run("cutover", "start", "move", url=url)
    assert run("cutover", "abort", "move", url=url).exit_code == 0
    begun(rest, state=CutoverState.OPEN, opened_ms=5)
    refused = run("cutover", "abort", "move", url=url)
    assert "ureplicator cutover back moves clients back" in refused.stderr


def test_the_way_back_is_shown_and_begun(rest: CutoverRest, url: str) -> None:
    run(*PLAN, url=url)
    run("cutover", "start", "move", url=url)
    begun(rest, state=CutoverState.DONE, opened_ms=5)
    rest.turn("orders")
    shown = run("cutover", "back", "move", "--dry-run", url=url)
    assert (shown.exit_code, rest.request().plan.route.source) == (0, "source")
    assert "from target to source" in shown.stdout
    rest.on_start = lambda: begun(rest, state=CutoverState.DONE, opened_ms=9)
    assert run("cutover", "back", "move", "--wait", url=url).exit_code == 0
    assert rest.request().plan.route.source == "target"


# --- Following


def body_of(state: str, *, run: str | None = "r", wanted: str = "start", **more: Any) -> Body:
    return {"state": state, "run": run, "request": "r", "wanted": wanted, **more}


def test_changes_alone_are_shown_and_the_end() -> None:
    found = [
        body_of("FENCED", blockedSeconds=1.0),
        body_of("FENCED", blockedSeconds=2.0),
        body_of("DRAINED", blockedSeconds=3.0),
        body_of("WATCHED"),
        body_of("DONE"),
    ]
    shown = followed(iter(found), until=is_moved("r"))
    assert [body["state"] for body in shown] == ["FENCED", "DRAINED", "WATCHED"]


@pytest.mark.parametrize(
    ("body", "moved", "rehearsed"),
    [
        (body_of("PLANNED", run=None), False, False),
        (body_of("PLANNED"), False, False),
        (body_of("PLANNED", wanted="plan"), False, True),
        (body_of("OPEN"), False, False),
        (body_of("ABORTED", wanted="abort"), True, True),
        (body_of("PLANNED", run="other"), True, True),
        (body_of("PLANNED", run=None, wanted="abort") | {"request": "other"}, True, True),
    ],
)
def test_ends(body: Body, moved: bool, rehearsed: bool) -> None:
    assert (is_moved("r")(body), is_rehearsed("r")(body)) == (moved, rehearsed)


def test_a_plan_is_idle_and_a_start_is_not() -> None:
    assert is_idle(body_of("PLANNED", wanted="plan"))
    assert not is_idle(body_of("PLANNED"))


def test_a_controller_that_is_away_is_asked_again_until_the_time_is_over(
    capsys: pytest.CaptureFixture[str],
) -> None:
    times = iter(range(100))
    with pytest.raises(SystemExit):
        next(
            readings(
                "127.0.0.1:1",
                "move",
                timeout_s=2,
                now_s=lambda: next(times),
                wait=lambda _: None,
            )
        )
    shown = capsys.readouterr().err
    assert shown.count("trying again") == 1
    assert "move took longer than 2 s" in shown
