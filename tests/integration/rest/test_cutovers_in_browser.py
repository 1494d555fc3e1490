"""The pages of cutovers in a real browser: the list, one with its steps, and its line in the timeline."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from playwright.sync_api import Browser, Page, expect

from ureplicator_common.cutovers import Cutover, CutoverState, LateWrite, Step, Wanted
from ureplicator_common.model import EventKind, Partition
from ureplicator_common.znode_contents import PastEvent
from ureplicator_common.znodes.fleet import encode_history
from ureplicator_controller.api.app import TIMELINE
from ureplicator_testkit.control.cutover_fixture import CutoverRest
from ureplicator_testkit.control.rest_fixture import ROUTE
from ureplicator_testkit.fleet.browser import SHOWN_WITHIN_MS, no_errors, serious_faults, served

pytestmark = pytest.mark.integration

HOSTILE = "orders/0: <img src=x onerror=alert(1)> holds it\u202egnp.evil"
PATHS = ("show/cutovers", "show/cutover?name=move")


@pytest.fixture
def rest() -> Iterator[CutoverRest]:
    """`orders` and the group `billing`, whose cutover `move` is FENCED and waits."""
    with closing(CutoverRest(now_s=datetime.now(UTC).timestamp())) as rest:
        rest.put_leader()
        body = {"topics": ["orders"], "groups": ["billing"]}
        plan = rest.call("POST", "/cutovers/move?src=source", json=body).get_json()["plan"]["id"]
        assert rest.call("POST", f"/cutovers/move/start?plan={plan}").status_code == 200
        rest.put_cutover(fenced(rest))
        yield rest


def fenced(rest: CutoverRest) -> Cutover:
    now_ms, request = rest.clock.wall_ms(), rest.request()
    return Cutover(
        run=request.run,
        plan=request.plan,
        state=CutoverState.FENCED,
        wanted=Wanted.START,
        fenced_ms=now_ms - 1_400,
        fencing=True,
        steps=(Step(CutoverState.FENCED, now_ms - 1_100, 300),),
        waits=(HOSTILE,),
        rehearsed_ms={"FENCED": 310, "DRAINED": 120},
    )


def opened(rest: CutoverRest) -> Cutover:
    now_ms, before = rest.clock.wall_ms(), fenced(rest)
    names = ("DRAINED", "VERIFIED", "GROUPS", "OPEN")
    steps = [Step(CutoverState(name), now_ms - 500, 150) for name in names]
    return replace(
        before,
        state=CutoverState.OPEN,
        opened_ms=now_ms - 500,
        steps=(*before.steps, *steps),
        waits=(),
        groups={"billing": "written"},
        late=(LateWrite("orders", 2, 40, 42, (77,), now_ms, is_alarm=True),),
        late_offsets=2,
    )


@pytest.fixture
def address(rest: CutoverRest) -> Iterator[str]:
    with served(rest.app) as address:
        yield address


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """The test fails with what the page's console says, but for refusals, which the page shows."""
    page = browser.new_page(viewport={"width": 1200, "height": 900})
    with no_errors(page, but="Failed to load resource") as page:
        yield page


def test_a_cutover_is_followed_from_the_fence_to_open(
    rest: CutoverRest, page: Page, address: str
) -> None:
    page.goto(address)
    page.get_by_role("link", name="cutovers").click()
    row = page.locator("#parts tbody tr")
    for text in ("source.target", "FENCED", "start", "so far"):
        expect(row).to_contain_text(text)
    row.get_by_role("link", name="move").click()
    expect(page.locator("#title")).to_have_text("cutover move")
    shown = page.get_by_role("region", name="Steps")
    steps = shown.locator("table").first.locator("tbody tr")
    expect(steps).to_have_count(8)
    expect(steps.nth(1)).to_contain_text(re.compile("FENCED.*reached.*0.30 s.*0.31 s"))
    expect(steps.nth(2)).to_contain_text(re.compile("DRAINED.*under way.*0.12 s"))
    expect(steps.nth(5).locator(".quiet")).to_have_count(6)
    expect(shown.locator("[aria-current=step]")).to_have_text("FENCED")
    blocked = shown.locator("dd").first
    expect(blocked).to_have_text(re.compile(r"^\d+\.\d\d s so far$"))
    expect(shown.get_by_role("listitem")).to_contain_text(HOSTILE)
    assert page.locator("main img").count() == 0
    expect(shown).to_contain_text(re.compile("billing.*to come"))
    rest.put_cutover(opened(rest))
    expect(page.get_by_role("status").nth(1)).to_have_text(
        "source -> target: OPEN", timeout=SHOWN_WITHIN_MS
    )
    expect(page.get_by_role("alert").first).to_have_text(
        "Written at source after OPEN, and not copied: orders/2"
    )
    expect(blocked).to_have_text("0.90 s")
    expect(shown).to_contain_text(re.compile("alarm: after OPEN.*orders/2.*40 to 41.*77"))
    expect(shown).to_contain_text(re.compile("billing.*written"))


def test_an_abort_is_confirmed_and_shows_its_reason(
    rest: CutoverRest, page: Page, address: str
) -> None:
    page.goto(address + PATHS[1])
    page.get_by_role("button", name="Move back").click()
    expect(page.locator("#confirm-result")).not_to_be_empty()
    expect(page.locator("#confirm-apply")).to_be_disabled()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Abort").click()
    expect(page.locator("#confirm-lines")).to_contain_text("rights and offsets are as they were")
    page.locator("#confirm-apply").click()
    expect(page.locator("#confirm")).to_be_hidden()
    assert rest.request().wanted is Wanted.ABORT
    before, now_ms = fenced(rest), rest.clock.wall_ms()
    steps = (*before.steps, Step(CutoverState.ABORTED, now_ms, 200))
    reason = "clients were kept from writing for more than 60 s"
    aborted = replace(before, state=CutoverState.ABORTED, reason=reason, steps=steps, waits=())
    rest.put_cutover(replace(aborted, wanted=Wanted.ABORT))
    expect(page.get_by_role("status").nth(1)).to_have_text(
        f"source -> target: ABORTED; {reason}", timeout=SHOWN_WITHIN_MS
    )
    rows = page.get_by_role("region", name="Steps").locator("table").first.locator("tbody tr")
    expect(rows.nth(5)).to_contain_text(re.compile("OPEN.*not reached"))
    expect(rows.nth(8)).to_contain_text(re.compile(r"ABORTED.*reached.*0.20 s"))


def test_its_events_are_in_the_timeline_the_history_and_its_page(
    rest: CutoverRest, page: Page, address: str
) -> None:
    now_ms = round(datetime.now(UTC).timestamp() * 1_000) - 60_000
    of_move = "cutover move of source.target: "
    texts = (f"{of_move}OPEN after 0.42 s", f"{of_move}ABORTED after 1.00 s: not drained")
    other = "cutover move-2 of source.target: OPEN after 0.50 s"
    past = [
        PastEvent(number, EventKind.CUTOVER, text, now_ms, request="r1/olga")
        for number, text in enumerate((*texts, other), 1)
    ]
    alarm = PastEvent(
        4,
        EventKind.CUTOVER,
        "cutover move: written at source behind OPEN, and not copied",
        now_ms,
        partition=Partition(ROUTE, "orders", 2),
        first_offset=40,
        next_offset=42,
    )
    rest.put(rest.paths.history_block(0), encode_history([*past, alarm]))
    rest.app.extensions[TIMELINE].run_once()
    page.goto(address)
    listed = page.locator("#timeline-events li")
    expect(listed).to_have_count(4)
    expect(listed.filter(has_text="OPEN after 0.42 s: by olga")).to_have_count(1)
    expect(listed.filter(has_text="offsets 40 to 41")).to_contain_text("source.target/orders/2")
    marks = page.evaluate(
        "async (reasons) => {"
        " const { markOf } = await import('./dashboard/grid/timeline.js');"
        " return reasons.map((reason) => markOf({ kind: 'cutover', reason, request: 'r1' })); }",
        [*texts, f"{of_move}ABORTED after 1.00 s: requested by an operator", alarm.reason],
    )
    assert marks == ["act", "fault", "act", "fault"]
    page.locator("#history summary").click()
    page.locator("#history-kind").select_option("cutover")
    expect(page.locator("#history-rows tbody tr")).to_have_count(4)
    page.goto(address + PATHS[1])
    events = page.get_by_role("region", name="Events")
    expect(events.locator("tbody tr")).to_have_count(3)
    expect(events).not_to_contain_text("move-2")


@pytest.mark.parametrize("path", PATHS, ids=["all", "one"])
def test_axe_finds_no_serious_fault_and_a_phone_has_room(
    rest: CutoverRest, page: Page, address: str, path: str
) -> None:
    rest.put_cutover(opened(rest))
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto(address + path)
    expect(page.locator("#parts table").first).to_be_visible()
    expect(page.locator("#pulse")).to_contain_text("read ", timeout=10_000)
    assert serious_faults(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
