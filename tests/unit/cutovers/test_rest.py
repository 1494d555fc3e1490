"""`/cutovers`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ureplicator_common.cutovers import (
    AclChange,
    Cutover,
    CutoverState,
    LateWrite,
    Step,
    Wanted,
)
from ureplicator_common.kafka.acls import ALLOW, DENY, LITERAL, WRITE, TopicAcl
from ureplicator_common.model import Route, TopicState
from ureplicator_common.znode_contents import TopicIntent
from ureplicator_testkit.control.cutover_fixture import BACK, CutoverRest
from ureplicator_testkit.control.rest_fixture import ROUTE, problem_of

PLAN = {"topics": ["orders"], "groups": ["bill.*"]}


def planned(rest: CutoverRest, name: str = "move", **changes: Any) -> dict[str, Any]:
    response = rest.call("POST", f"/cutovers/{name}?src=source", json={**PLAN, **changes})
    assert response.status_code == 200, response.text
    return dict(response.get_json())


def started(rest: CutoverRest, **changes: Any) -> Cutover:
    """A run that the leader has begun."""
    plan = planned(rest, **changes)["plan"]["id"]
    response = rest.call("POST", f"/cutovers/move/start?plan={plan}")
    assert response.status_code == 200, response.text
    request = rest.request()
    run = Cutover(run=request.run, plan=request.plan, wanted=Wanted.START)
    rest.put_cutover(run)
    return run


def right(principal: str, *, permission: str = ALLOW, operation: str = WRITE) -> TopicAcl:
    return TopicAcl("orders", LITERAL, principal, "*", operation, permission)


def shown(rest: CutoverRest) -> dict[str, Any]:
    return dict(rest.call("GET", "/cutovers/move").get_json())


def test_a_plan_is_stored_with_its_id(rest: CutoverRest) -> None:
    found = planned(rest)
    plan = found["plan"]
    assert (plan["topics"], plan["groups"], found["blocked"]) == ({"orders": 4}, ["billing"], False)
    assert rest.request().wanted is Wanted.PLAN
    assert rest.request().plan.id == plan["id"]
    assert shown(rest)["state"] == "PLANNED"
    listed = rest.call("GET", "/cutovers").get_json()["cutovers"]
    assert [(each["name"], each["state"], each["topics"]) for each in listed] == [
        ("move", "PLANNED", 1)
    ]


def test_the_same_wish_has_the_same_id_and_another_one_another(rest: CutoverRest) -> None:
    first = planned(rest)["plan"]["id"]
    assert planned(rest, name="other")["plan"]["id"] == first
    assert planned(rest, waitForGroups=True)["plan"]["id"] != first


def test_a_dry_run_stores_nothing(rest: CutoverRest) -> None:
    response = rest.call("POST", "/cutovers/move?src=source&dry_run=true", json=PLAN)
    assert response.get_json()["dryRun"] is True
    problem_of(rest.call("GET", "/cutovers/move"), 404)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "topics"),
        ({"topics": []}, "topics"),
        ({"topics": ["("]}, "topics"),
        ({"topics": ["orders"], "groups": ["("]}, "groups"),
        ({"topics": ["orders"], "fence": "wall"}, "fence"),
        ({"topics": ["orders"], "fence": "command"}, "fenceCommand"),
        ({"topics": ["orders"], "fenceCommand": "gate"}, "fenceCommand"),
        ({"topics": ["orders"], "fence": "acl", "principal": "nobody"}, "principal"),
        ({"topics": ["orders"], "wayBack": "no"}, "wayBack"),
        ({"topics": ["orders"], "limitSeconds": 0}, "limitSeconds"),
    ],
)
def test_a_wish_that_cannot_be(rest: CutoverRest, body: dict[str, Any], field: str) -> None:
    problem = problem_of(rest.call("POST", "/cutovers/move?src=source", json=body), 400)
    assert problem["field"] == field


@pytest.mark.parametrize("name", ["..", "a%2Fb", "a b"])
def test_names_are_as_ids(rest: CutoverRest, name: str) -> None:
    response = rest.call("POST", f"/cutovers/{name}?src=source", json=PLAN)
    assert response.status_code in (400, 404, 405)


def test_the_principal_is_that_of_the_login(rest: CutoverRest) -> None:
    assert planned(rest, fence="acl")["plan"]["principal"] == "User:ANONYMOUS"
    assert planned(rest, fence="acl", principal="User:u")["plan"]["principal"] == "User:u"


def test_the_rights_of_a_fence_are_part_of_the_plan(rest: CutoverRest) -> None:
    rest.acls["source"].acls = {right("User:shop"), right("User:fleet")}
    rest.acls["target"].acls = {right("User:shop")}
    plan = planned(rest, fence="acl", principal="User:fleet")["plan"]
    assert plan["rights"]["added"] == [
        "DENY WRITE for User:shop from * on literal orders",
    ]
    rest.acls["source"].acls.add(right("User:other"))
    rest.acls["target"].acls.add(right("User:other"))
    problem = problem_of(rest.call("POST", "/cutovers/move/start?confirm=true"), 409)
    assert "rights of the source are others" in problem["detail"]


def test_the_fence_of_the_way_there_does_not_count_at_the_way_back(rest: CutoverRest) -> None:
    shop, denied = right("User:shop"), right("User:shop", permission=DENY)
    rest.acls["source"].acls = {shop, denied}
    rest.acls["target"].acls = {shop}
    run = started(rest)
    rest.turn("orders")
    done = replace(run, state=CutoverState.DONE, opened_ms=5)
    rest.put_cutover(done)
    back = "/cutovers/move/back?dry_run=true"
    assert rest.call("POST", back).get_json()["blocked"]
    rest.put_cutover(replace(done, fences={"source": AclChange(added=frozenset({denied}))}))
    assert not rest.call("POST", back).get_json()["blocked"]


def test_a_start_takes_the_id_or_a_confirmation(rest: CutoverRest) -> None:
    plan = planned(rest)["plan"]["id"]
    assert problem_of(rest.call("POST", "/cutovers/move/start"), 409)["field"] == "confirm"
    other = problem_of(rest.call("POST", f"/cutovers/move/start?plan={'0' * 16}"), 409)
    assert plan in other["detail"]
    assert rest.request().wanted is Wanted.PLAN
    done = rest.call("POST", "/cutovers/move/start?confirm=true").get_json()
    request = rest.request()
    assert (request.wanted, request.plan.id, request.run) == (Wanted.START, plan, done["request"])


def test_a_start_says_what_has_changed(rest: CutoverRest) -> None:
    planned(rest, topics=["orders|quiet"])
    rest.put_intent("quiet", TopicIntent(1, 1, target_topic="quiet"))
    rest.groups.add("billing-2", {("orders", 1): 3})
    problem = problem_of(rest.call("POST", "/cutovers/move/start?confirm=true"), 409)
    assert "topics added: quiet; groups added: billing-2" in problem["detail"]
    assert rest.request().wanted is Wanted.PLAN


def test_what_blocks_is_not_started(rest: CutoverRest) -> None:
    planned(rest)
    rest.put_intent("orders", TopicIntent(4, 4, state=TopicState.PAUSED, target_topic="orders"))
    for verb in ("start?confirm=true", "rehearse"):
        problem = problem_of(rest.call("POST", f"/cutovers/move/{verb}"), 409)
        assert "orders: it is paused" in problem["detail"]


def test_a_rehearsal_is_requested(rest: CutoverRest) -> None:
    planned(rest)
    assert rest.call("POST", "/cutovers/move/rehearse").status_code == 200
    request = rest.request()
    assert request.wanted is Wanted.REHEARSE
    rehearsed = Cutover(run=request.run, plan=request.plan, rehearsed_ms={"DRAINED": 250})
    rest.put_cutover(rehearsed)
    found = shown(rest)
    assert (found["rehearsal"], found["wanted"], found["state"]) == (
        {"DRAINED": 0.25},
        "plan",
        "PLANNED",
    )
    problem = problem_of(rest.call("POST", "/cutovers/move/abort"), 409)
    assert "nothing of it is under way" in problem["detail"]
    assert rest.call("POST", "/cutovers/move/start?confirm=true").status_code == 200


def test_a_run_is_shown_with_its_times(rest: CutoverRest) -> None:
    run = started(rest)
    now_ms = rest.clock.wall_ms()
    late = LateWrite("orders", 1, 7, 9, (4_001,), now_ms, is_alarm=True)
    rest.put_cutover(
        replace(
            run,
            state=CutoverState.FENCED,
            fencing=True,
            fenced_ms=now_ms - 1_500,
            steps=(Step(CutoverState.FENCED, now_ms - 1_200, 300),),
            waits=("orders/1: 7 offsets are not copied yet",),
            late=(late,),
            late_offsets=2,
        )
    )
    found = shown(rest)
    assert (found["state"], found["wanted"], found["blockedSeconds"]) == ("FENCED", "start", 1.5)
    assert [(step["state"], step["seconds"]) for step in found["steps"]] == [("FENCED", 0.3)]
    assert found["waits"] == ["orders/1: 7 offsets are not copied yet"]
    assert found["late"][0]["producers"] == [4_001]
    for verb in ("", "/start?confirm=true", "/rehearse"):
        body = None if verb else PLAN
        query = "" if verb else "?src=source"
        problem = problem_of(rest.call("POST", f"/cutovers/move{verb}{query}", json=body), 409)
        assert "it is under way: FENCED" in problem["detail"]


def test_the_time_without_writers_ends_when_it_opens(rest: CutoverRest) -> None:
    run = started(rest)
    rest.put_cutover(replace(run, state=CutoverState.WATCHED, fenced_ms=1_000, opened_ms=2_400))
    assert shown(rest)["blockedSeconds"] == 1.4
    ended = (Step(CutoverState.FENCED, 1_200, 200), Step(CutoverState.ABORTED, 1_900, 700))
    rest.put_cutover(replace(run, state=CutoverState.ABORTED, fenced_ms=1_000, steps=ended))
    assert shown(rest)["blockedSeconds"] == 0.9


def test_an_abort_names_the_run(rest: CutoverRest) -> None:
    run = started(rest)
    assert rest.call("POST", "/cutovers/move/abort").status_code == 200
    assert (rest.request().wanted, rest.request().run) == (Wanted.ABORT, run.run)
    rest.put_cutover(replace(run, state=CutoverState.ABORTED, wanted=Wanted.ABORT))
    assert "ABORTED" in problem_of(rest.call("POST", "/cutovers/move/abort"), 409)["detail"]
    assert planned(rest)["plan"]


def test_what_is_open_is_not_aborted_but_goes_back(rest: CutoverRest) -> None:
    rest.put_cutover(replace(started(rest), state=CutoverState.OPEN, opened_ms=5))
    problem = problem_of(rest.call("POST", "/cutovers/move/abort"), 409)
    assert "/back moves clients back" in problem["hint"]


@pytest.mark.parametrize("state", [CutoverState.PLANNED, CutoverState.GROUPS, CutoverState.ABORTED])
def test_nothing_goes_back_that_has_not_gone(rest: CutoverRest, state: CutoverState) -> None:
    run = started(rest)
    if state is not CutoverState.PLANNED:
        rest.put_cutover(replace(run, state=state))
    problem_of(rest.call("POST", "/cutovers/move/back?confirm=true"), 409)


def test_the_way_back_is_the_same_with_both_clusters_changed_over(rest: CutoverRest) -> None:
    run = started(rest, fence="acl")
    rest.put_cutover(replace(run, state=CutoverState.DONE, opened_ms=5))
    rest.turn("orders")
    problem_of(rest.call("POST", "/cutovers/move/back"), 409)
    dry = rest.call("POST", "/cutovers/move/back?dry_run=true").get_json()
    assert not dry["blocked"], dry["findings"]
    assert rest.request().plan.route == ROUTE
    done = rest.call("POST", "/cutovers/move/back?confirm=true").get_json()
    request = rest.request()
    assert (request.wanted, request.plan.route, request.plan.id) == (
        Wanted.START,
        BACK,
        done["plan"]["id"],
    )
    assert (dict(request.plan.topics), request.plan.groups) == ({"orders": 4}, ("billing",))
    found = shown(rest)
    assert (found["state"], found["former"]["state"]) == ("PLANNED", "DONE")


def test_without_a_way_back_nothing_goes_back(rest: CutoverRest) -> None:
    run = started(rest, wayBack=False)
    rest.put_cutover(replace(run, state=CutoverState.DONE))
    problem = problem_of(rest.call("POST", "/cutovers/move/back?confirm=true"), 409)
    assert "without a way back" in problem["detail"]


def test_a_cutover_that_is_not_there(rest: CutoverRest) -> None:
    for method, verb in (
        ("GET", ""),
        ("POST", "/start?confirm=true"),
        ("POST", "/rehearse"),
        ("POST", "/abort"),
        ("POST", "/back?confirm=true"),
    ):
        problem_of(rest.call(method, f"/cutovers/nothing{verb}"), 404)


def test_a_cluster_that_is_away_is_said(rest: CutoverRest) -> None:
    rest.groups.lost = True
    problem_of(rest.call("POST", "/cutovers/move?src=source", json=PLAN), 503)


def test_a_route_is_chosen(rest: CutoverRest) -> None:
    assert problem_of(rest.call("POST", "/cutovers/move", json=PLAN), 400)["field"] == "src"
    assert Route("source", "target") == ROUTE
