"""Four topics copied during a fault: at least once and exactly once, each with and without a handler.

Two routes lead from the source to the target, since delivery is a setting of a route. The target has a
second name for that (`servers.network.ALIASES`). All four are judged with the first one.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from ureplicator_common.model import Delivery, Route
from ureplicator_testkit.fleet.real_fleet import Fleet
from ureplicator_testkit.histories.checker import Promise
from ureplicator_testkit.records.flow import Flow, Site

HANDLED = "-handled"
"""End of the names of topics that go through a handler."""
HANDLER = {"topics": f".*{HANDLED}", "handler": "ureplicator_worker.handlers:identity"}
ONCE = Route("source", "once")
ROUTES: list[dict[str, Any]] = [
    {"source": "source", "target": "target", "handlers": [HANDLER]},
    {"source": "source", "target": "once", "delivery": "exactly_once", "handlers": [HANDLER]},
]


def start_four_flows(
    site: Site,
    fleet: Fleet,
    topic: str,
    *,
    first: dict[str, Any],
    others: dict[str, Any],
    ends: ExitStack,
) -> Flow:
    """The flow of `topic`, at least once without a handler, with three beside it.

    `first`, `others`: partitions and rate of each flow. `ends` closes them.
    """

    def made(name: str, **how: Any) -> Flow:
        flow = Flow(site, fleet, name, **how)
        ends.callback(flow.close)
        return flow

    once = Promise(Delivery.EXACTLY_ONCE)
    transactions = Promise(Delivery.EXACTLY_ONCE, transactional=True)
    return made(topic, **first).start(
        made(topic + HANDLED, **others),
        made(f"{topic}-once", route=ONCE, promise=once, **others),
        made(f"{topic}-once{HANDLED}", route=ONCE, promise=transactions, **others),
    )
