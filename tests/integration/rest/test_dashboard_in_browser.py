"""The dashboard in a real browser: Debian's Chromium, driven by playwright, against REST over in-memory
ZooKeeper and Kafka, which a test can put into any state at once."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from ureplicator_common.coordination import Delete
from ureplicator_common.model import (
    EventKind,
    OwnerEpoch,
    Partition,
    PartitionState,
    TopicState,
    WorkerId,
)
from ureplicator_common.znode_contents import LiveController, PastEvent, TopicIntent
from ureplicator_common.znodes.fleet import decode_switches, encode_controller, encode_history
from ureplicator_common.znodes.workers import decode_known_worker
from ureplicator_testkit.control.rest_fixture import ROUTE, RestFixture
from ureplicator_testkit.fleet.browser import SHOWN_WITHIN_MS, no_errors, serious_faults, served

pytestmark = pytest.mark.integration

HOSTILE_ID = "<img src=x onerror=alert(1)>"
HOSTILE = "<img src=x onerror=alert(1)><script>document.title='taken'</script>\u202egnp.evil"


@pytest.fixture
def rest() -> Iterator[RestFixture]:
    rest = RestFixture()
    rest.put_leader()
    rest.add_worker("w1")
    rest.add_worker("w2")
    rest.put_intent("orders", TopicIntent(4, 4, target_topic="orders"))
    rest.place("orders", {0: "w1", 1: "w1", 2: "w1", 3: "w1"})
    rest.put_states("w1", "orders", dict.fromkeys(range(4), PartitionState.ONLINE))
    yield rest
    rest.close()


@pytest.fixture
def address(rest: RestFixture) -> Iterator[str]:
    with served(rest.app) as address:
        yield address


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    """The page of a fleet in which all agrees. The test fails with what its console says."""
    with no_errors(browser.new_page(viewport={"width": 1200, "height": 900})) as page:
        page.goto(address)
        expect(page.locator("#count-agree")).to_have_text("4", timeout=10_000)
        yield page


def click_tile(page: Page, x: int = 5, y: int = 27) -> None:
    """Click the first tile, which is below the label of its worker."""
    page.locator("#grid").click(position={"x": x, "y": y})


def apply(page: Page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()
    expect(page.locator("#confirm-apply")).to_be_enabled()
    page.locator("#confirm-apply").click()
    expect(page.locator("#confirm")).to_be_hidden()


def test_a_mismatch_appears_with_its_reason_and_disappears(rest: RestFixture, page: Page) -> None:
    rest.place("orders", {0: "w2", 1: "w1", 2: "w1", 3: "w1"})
    expect(page.locator("#count-moving")).to_have_text("1", timeout=SHOWN_WITHIN_MS)
    page.locator("#grid-differing").check()
    assert "differing=true" in page.url
    click_tile(page)
    expect(page.locator("#tile")).to_contain_text("source.target/orders/0: moving")
    expect(page.locator("#tile")).to_contain_text("waiting for w1 to release it")
    expect(page.locator("#routes")).to_contain_text("1 partition is not as in the ideal state")
    rest.put_states("w1", "orders", {n: PartitionState.ONLINE for n in (1, 2, 3)})
    rest.put_states("w2", "orders", {0: PartitionState.ONLINE})
    expect(page.locator("#count-moving")).to_have_text("0", timeout=SHOWN_WITHIN_MS)
    expect(page.locator("#routes")).to_contain_text("nothing to do")


def reads_of(page: Page) -> list[str]:
    """Addresses of /overview that the page asks for from now on."""
    reads: list[str] = []
    page.on(
        "request", lambda request: reads.append(request.url) if "/overview" in request.url else None
    )
    return reads


def is_at_rest(page: Page, reads: list[str]) -> bool:
    """True if the page has read nothing for 2.5 s."""
    before = len(reads)
    page.wait_for_timeout(2_500)
    return len(reads) == before


def test_the_page_reads_what_has_changed_and_nothing_else(rest: RestFixture, page: Page) -> None:
    reads = reads_of(page)
    assert any(is_at_rest(page, reads) for _ in range(5)), "the first lag is collected and read"
    reads.clear()
    expect(page.locator("#grid-age")).to_contain_text(re.compile(r"read [01]\.\d s ago"))
    rest.place("orders", {0: "w2", 1: "w1", 2: "w1", 3: "w1"})
    expect(page.locator("#count-moving")).to_have_text("1", timeout=SHOWN_WITHIN_MS)
    assert len(reads) == 1


def test_a_hidden_page_reads_nothing_until_it_is_shown(rest: RestFixture, page: Page) -> None:
    hide = "Object.defineProperty(document, 'hidden', { value: %s, configurable: true })"
    shown = "document.dispatchEvent(new Event('visibilitychange'))"
    reads = reads_of(page)
    page.evaluate(f"{hide % 'true'}; {shown}")
    assert any(is_at_rest(page, reads) for _ in range(5)), "what was under way has ended"
    reads.clear()
    rest.place("orders", {0: "w2", 1: "w1", 2: "w1", 3: "w1"})
    page.wait_for_timeout(3_000)
    assert reads == []
    page.evaluate(f"{hide % 'false'}; {shown}")
    expect(page.locator("#count-moving")).to_have_text("1", timeout=SHOWN_WITHIN_MS)


def test_without_a_stream_the_page_asks_each_second(
    rest: RestFixture, browser: Browser, address: str
) -> None:
    """The stream is missing as behind a proxy that holds events back, or where the server has too many
    streams."""
    with no_errors(browser.new_page(), but="Failed to load resource") as page:
        page.route("**/events", lambda route: route.fulfill(status=503))
        page.goto(address)
        expect(page.locator("#count-agree")).to_have_text("4", timeout=10_000)
        rest.place("orders", {0: "w2", 1: "w1", 2: "w1", 3: "w1"})
        expect(page.locator("#count-moving")).to_have_text("1", timeout=SHOWN_WITHIN_MS)
        expect(page.locator("#grid-lost")).to_be_empty()


def test_a_click_shows_the_moves_of_the_partition(rest: RestFixture, page: Page) -> None:
    moves = [
        PastEvent(
            number,
            EventKind.MOVE,
            f"balance {number}",
            1_000,
            partition=Partition(ROUTE, "orders", number),
            source=WorkerId("w2"),
            target=WorkerId("w1"),
            owner_epoch=OwnerEpoch(5),
        )
        for number in range(2)
    ]
    rest.put(rest.paths.history_block(0), encode_history(moves))
    click_tile(page)
    shown = page.locator("#tile-moves li")
    expect(shown).to_have_count(1)
    expect(shown).to_contain_text("w2 -> w1: balance 0")
    page.locator("#grid").press("ArrowRight")
    expect(shown).to_contain_text("w2 -> w1: balance 1")


def test_without_scripts_the_list_is_shown(
    rest: RestFixture, browser: Browser, address: str
) -> None:
    rest.place("orders", {0: "w2", 1: "w1", 2: "w1", 3: "w1"})
    rest.put_states("w1", "orders", dict.fromkeys(range(4), PartitionState.ERROR), reason=HOSTILE)
    page = browser.new_page(java_script_enabled=False)
    page.goto(address)
    page.wait_for_url(f"{address}list")
    expect(page.locator("tbody tr")).to_have_count(4)
    expect(page.locator("tbody")).to_contain_text(HOSTILE)
    expect(page.locator(".sentence")).to_contain_text("source -> target")
    page.get_by_role("link", name="0 agree").click()
    expect(page.locator("main")).to_contain_text("None.")
    page.close()


def test_the_history_has_filters(rest: RestFixture, page: Page) -> None:
    events = [
        PastEvent(0, EventKind.WORKER, "drained", 1_000, worker=WorkerId("w1")),
        PastEvent(
            1,
            EventKind.MOVE,
            HOSTILE,
            1_000,
            partition=Partition(ROUTE, "orders", 3),
            source=WorkerId("w2"),
            target=WorkerId("w1"),
            owner_epoch=OwnerEpoch(5),
        ),
    ]
    rest.put(rest.paths.history_block(0), encode_history(events))
    page.locator("#history summary").click()
    rows = page.locator("#history-rows tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text(HOSTILE)
    expect(rows.first).to_contain_text("w2 -> w1")
    page.locator("#history-kind").select_option("worker")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("drained")
    page.locator("#history-topic").fill("orders")
    page.locator("#history-topic").press("Enter")
    expect(page.locator("#history-rows")).to_contain_text("No such event")
    page.locator("#history-kind").select_option("")
    expect(rows).to_contain_text("source.target/orders/3")


def test_the_age_of_the_lag_is_that_of_the_last_event(page: Page) -> None:
    """The clock of REST stands still, so the lag stays new however long the page is open."""
    page.wait_for_timeout(4_000)
    expect(page.locator("#grid-age")).to_contain_text(re.compile(r"lag [01]\.\d s old"))


def test_keys_choose_tiles_and_the_table_has_the_same(page: Page) -> None:
    page.locator("#grid").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#tile")).to_contain_text("orders/0: agree")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#tile")).to_contain_text("orders/1: agree")
    page.locator("#grid-table summary").click()
    expect(page.locator("#grid-rows tbody tr")).to_have_count(4)


def test_the_address_has_the_filters(page: Page, address: str) -> None:
    page.goto(f"{address}?topic=nothing")
    expect(page.locator("#grid-shown")).to_have_text("0 of 4 partitions")
    page.locator("#grid-topic").fill("ord")
    expect(page.locator("#grid-shown")).to_have_text("4 of 4 partitions")
    assert page.url == f"{address}?topic=ord"
    page.locator("#grid-worker").select_option("w2")
    expect(page.locator("#grid-shown")).to_have_text("0 of 4 partitions")
    assert page.url == f"{address}?topic=ord&worker=w2"
    page.reload()
    expect(page.locator("#grid-worker")).to_have_value("w2")
    expect(page.locator("#grid-shown")).to_have_text("0 of 4 partitions")
    page.locator("#grid-worker").select_option("")
    expect(page.locator("#grid-shown")).to_have_text("4 of 4 partitions")


def test_clicks_pause_and_resume_a_topic(rest: RestFixture, page: Page) -> None:
    click_tile(page)
    apply(page, "Pause orders")
    paused = rest.intent("orders")
    assert paused is not None
    assert paused.state is TopicState.PAUSED
    apply(page, "Resume orders")
    resumed = rest.intent("orders")
    assert resumed is not None
    assert resumed.state is TopicState.ACTIVE


def test_clicks_drain_a_worker(rest: RestFixture, page: Page) -> None:
    click_tile(page)
    path = rest.paths.worker_known(WorkerId("w1"))
    for name, drained in (("Drain w1", True), ("End draining of w1", False)):
        apply(page, name)
        node = rest.other_client.get(path)
        assert node is not None
        assert decode_known_worker(node.data).draining is drained


def test_clicks_freeze_and_the_sentence_unfreezes(rest: RestFixture, page: Page) -> None:
    apply(page, "Freeze")
    expect(page.locator("#routes")).to_contain_text("the fleet is frozen", timeout=SHOWN_WITHIN_MS)
    apply(page, "Do it")
    node = rest.other_client.get(rest.paths.settings)
    assert node is not None
    assert not decode_switches(node.data).frozen


def test_a_rebalance_shows_its_moves_first(rest: RestFixture, page: Page) -> None:
    rest.place("orders", dict.fromkeys(range(4)))
    page.get_by_role("button", name="Rebalance", exact=True).click()
    expect(page.locator("#confirm-lines li").first).to_contain_text("source.target/orders/0")
    before = rest.other_client.get(rest.paths.settings)
    page.locator("#confirm-cancel").click()
    assert rest.other_client.get(rest.paths.settings) == before
    apply(page, "Rebalance")
    node = rest.other_client.get(rest.paths.settings)
    assert node is not None
    assert decode_switches(node.data).rebalance_requested


def test_clicks_add_expand_and_delete_a_topic(rest: RestFixture, page: Page) -> None:
    rest.source.put("new", 4)
    page.locator("#topic-name").fill("new")
    page.locator("#topic-partitions").fill("2")
    apply(page, "Add topic")
    added = rest.intent("new")
    assert added is not None
    assert added.partitions == 2
    page.locator("#topic-partitions").fill("4")
    apply(page, "Expand topic")
    expanded = rest.intent("new")
    assert expanded is not None
    assert expanded.partitions == 4
    apply(page, "Delete topic")
    deleted = rest.intent("new")
    assert deleted is None or deleted.state is TopicState.DELETING


def test_a_refusal_is_shown_in_the_dialog(browser: Browser, address: str) -> None:
    page = browser.new_page()
    page.goto(address)
    page.locator("#topic-name").fill("nowhere")
    page.locator("#topic-add").click()
    page.locator("#confirm-apply").click()
    expect(page.locator("#confirm-result")).to_contain_text("topic nowhere does not exist")
    expect(page.locator("#confirm")).to_be_visible()
    page.close()


def test_hostile_reasons_are_text(rest: RestFixture, page: Page) -> None:
    rest.put_states("w1", "orders", dict.fromkeys(range(4), PartitionState.ERROR), reason=HOSTILE)
    expect(page.locator("#count-error")).to_have_text("4", timeout=SHOWN_WITHIN_MS)
    click_tile(page)
    expect(page.locator("#tile")).to_contain_text(HOSTILE)
    expect(page.locator("#routes")).to_contain_text(HOSTILE)
    assert page.title() != "taken"
    assert page.locator("main img").count() == 0


def test_without_zookeeper_the_last_known_stays_with_its_age(
    rest: RestFixture, browser: Browser, address: str
) -> None:
    page = browser.new_page()
    page.goto(address)
    expect(page.locator("#count-agree")).to_have_text("4", timeout=10_000)
    with rest.zookeeper_unavailable():
        lost = page.locator("#grid-lost")
        expect(lost).to_contain_text("what is shown is the last", timeout=SHOWN_WITHIN_MS)
        expect(page.locator("#count-agree")).to_have_text("4")
        expect(page.locator("#grid-age")).to_contain_text("ago")
    expect(lost).to_be_empty(timeout=10_000)
    page.close()


def test_ten_thousand_partitions_are_seen_at_once(
    rest: RestFixture, browser: Browser, address: str
) -> None:
    widths = (360, 1200)
    for topic in range(1000):
        rest.put_intent(f"t{topic:04}", TopicIntent(10, 10, target_topic=f"t{topic:04}"))
        rest.place(f"t{topic:04}", dict.fromkeys(range(10), "w1"))
    page = browser.new_page(viewport={"width": widths[0], "height": 900})
    page.goto(address)
    expect(page.locator("#grid-shown")).to_have_text("10,004 of 10,004 partitions", timeout=30_000)
    painted_ms = page.evaluate(
        "performance.getEntriesByName('first-contentful-paint')[0].startTime"
    )
    print(f"first paint after {painted_ms:.0f} ms")
    for width in widths:
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.close()


def test_axe_finds_no_serious_fault(rest: RestFixture, page: Page) -> None:
    """A count has two digits: axe judges no text of one character."""
    rest.put_intent(
        "gone", TopicIntent(12, 12, stopped="source topic was deleted", target_topic="gone")
    )
    rest.put_intent("quiet", TopicIntent(12, 12, state=TopicState.PAUSED, target_topic="quiet"))
    for topic in ("waiting", "fine"):
        rest.put_intent(topic, TopicIntent(12, 12, target_topic=topic))
        rest.place(topic, dict.fromkeys(range(12), "w2"))
    rest.put_states("w2", "fine", dict.fromkeys(range(12), PartitionState.ONLINE))
    expect(page.locator("#count-moving")).to_have_text("12", timeout=SHOWN_WITHIN_MS)
    expect(page.locator("small.lost")).to_be_visible(timeout=SHOWN_WITHIN_MS)
    expect(page.locator("small.warn", has_text="paused")).to_be_visible(timeout=SHOWN_WITHIN_MS)
    click_tile(page)
    page.locator("#grid-table summary").click()
    for width in (360, 1200):
        page.set_viewport_size({"width": width, "height": 900})
        assert any(not serious_faults(page) for _ in range(3)), serious_faults(page)


def test_conditions_of_the_fleet_are_shown_while_they_hold(rest: RestFixture, page: Page) -> None:
    """An old controller beside a new one."""
    conditions = page.locator("#conditions")
    expect(conditions).to_be_hidden()
    path = rest.paths.controller(HOSTILE_ID)
    old = encode_controller(LiveController(id=HOSTILE_ID, version="0.0.9"))
    rest.put(path, old, ephemeral=True)
    expect(conditions).to_contain_text(
        f"controllers run different versions: 0.0.9 ({HOSTILE_ID}), an unknown version (c2)",
        timeout=SHOWN_WITHIN_MS,
    )
    assert conditions.locator("img").count() == 0
    assert serious_faults(page) == []
    rest.other_client.transact([Delete(path, -1)])
    expect(conditions).to_be_hidden(timeout=SHOWN_WITHIN_MS)
