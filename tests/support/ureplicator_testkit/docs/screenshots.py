"""Pictures of the dashboard's pages in `docs/images`, of the fleet that the REST examples are of.

PYTHONPATH=tests/support python -m ureplicator_testkit.docs.screenshots
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from pathlib import Path

from ureplicator_common.model import EventKind, Route, TopicKey, WorkerId
from ureplicator_common.znode_contents import PastEvent
from ureplicator_controller.api.app import TIMELINE
from ureplicator_controller.api.services.timeline.sampler import TimelineSampler
from ureplicator_controller.api.services.timeline.store import Event
from ureplicator_controller.core.reporting.route_figures import RouteFigures, TopicFigures
from ureplicator_controller.core.reporting.shown_events import shown_event
from ureplicator_controller.core.usage import CopyCost
from ureplicator_testkit.control.rest_fixture import ROUTE, RestFixture
from ureplicator_testkit.docs.example_calls import NOW_S, example_world
from ureplicator_testkit.fleet.browser import chromium, served

IMAGES = Path(__file__).parents[4] / "docs/images"
WIDTH, HEIGHT = 1_200, 760
SAMPLES = 240
INTERVAL_S = 15
PAGES = {
    "topic": "show/topic?topic=orders&src=source&dst=target",
    "worker": "show/worker?worker=w1",
    "groups": "show/groups?route=source.target&group=billing",
}


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    world = example_world()
    _furnish_timeline(world)
    with served(world.app) as address, chromium() as browser:
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page.clock.set_fixed_time(datetime.fromtimestamp(NOW_S, UTC))
        for name, path in PAGES.items():
            page.goto(address + path)
            page.wait_for_load_state("networkidle")
            page.screenshot(path=IMAGES / f"{name}.png", full_page=True)
        page.goto(address)
        timeline = page.locator("section[aria-label=Timeline]")
        timeline.locator("canvas").nth(1).wait_for()
        timeline.screenshot(path=IMAGES / "timeline.png")
    world.close()


def _furnish_timeline(world: RestFixture) -> None:
    """An hour in which a worker was lost, and its partitions moved at once by an operator's rebalance."""
    sampler: TimelineSampler = world.app.extensions[TIMELINE]
    figures = [_figures(ROUTE, number) for number in range(SAMPLES)]
    lost_ms, asked_ms = (_at_ms(number) for number in (138, 150))
    events = [
        PastEvent(1, EventKind.WORKER, "gone", lost_ms, worker=WorkerId("w2")),
        PastEvent(2, EventKind.SWITCH, "rebalance requested", asked_ms, request="4f1c09aa/olga"),
    ]
    shown = [Event(past.wall_ms, past.number, shown_event(past)) for past in events]
    key = TopicKey(ROUTE, "orders")
    topics = [
        TopicFigures(key, figure.at_ms, figure.lag_records, figure.lag_s) for figure in figures
    ]
    sampler.store.add(figures, shown, topics)
    cost = CopyCost(3_560_000_000, 3_560_000_000_000, 3_560 * 1.22)
    sampler.store.add_usage({ROUTE: cost}, at_ms=_at_ms(0))


def _at_ms(number: int) -> int:
    return round((NOW_S - (SAMPLES - number) * INTERVAL_S) * 1_000)


def _figures(route: Route, number: int) -> RouteFigures:
    behind_s = 80 * math.exp(-(((number - 150) / 12) ** 2))
    share = 0.3 if 138 < number < 151 else 1.0
    wave = 1 + 0.04 * math.sin(number / 3) + 0.02 * math.sin(number * 1.7)
    return RouteFigures(
        route=route,
        at_ms=_at_ms(number),
        lag_records=round(behind_s * 1_000),
        lag_s=0.4 + behind_s,
        bytes_per_s=120e6 * share * wave,
        records_per_s=120_000 * share * wave,
        mismatches=2 if share < 1 else 0,
        errors=0,
    )


if __name__ == "__main__":
    main()
