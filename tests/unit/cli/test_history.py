"""`ureplicator history`."""

from __future__ import annotations

import json

from ureplicator_common.model import EventKind, Partition, WorkerId
from ureplicator_common.znode_contents import PastEvent
from ureplicator_common.znodes.fleet import encode_history
from ureplicator_testkit.control.command import run
from ureplicator_testkit.control.rest_fixture import ROUTE, RestFixture


def test_history(rest: RestFixture, url: str) -> None:
    moved = PastEvent(
        0,
        EventKind.MOVE,
        "w1 is gone",
        1_000,
        partition=Partition(ROUTE, "orders", 3),
        source=WorkerId("w1"),
        took_ms=1_500,
    )
    left = PastEvent(1, EventKind.WORKER, "drained", 2_000, worker=WorkerId("w1"))
    rest.put(rest.paths.history_block(0), encode_history([moved, left]))
    shown = run("history", url=url).stdout
    assert "orders/3" in shown
    assert "1.5 s" in shown
    assert "drained" in shown
    only = run("history", "--topic", "orders", "--limit", "5", "--json", url=url)
    assert [event["number"] for event in json.loads(only.stdout)["history"]] == [0]
    assert run("history", "--limit", "0", url=url).exit_code == 2


def test_gaps_are_listed_with_their_offsets(rest: RestFixture, url: str) -> None:
    gap = PastEvent(
        0,
        EventKind.GAP,
        "offset 5 is out of range at the source",
        1_000,
        worker=WorkerId("w1"),
        partition=Partition(ROUTE, "orders", 3),
        first_offset=5,
        next_offset=12_345,
    )
    left = PastEvent(1, EventKind.WORKER, "drained", 2_000, worker=WorkerId("w1"))
    rest.put(rest.paths.history_block(0), encode_history([gap, left]))
    shown = run("history", "--kind", "gap", url=url).stdout
    assert "orders/3" in shown
    assert "offset 12,345" in shown
    assert "drained" not in shown
    assert "gaps        1 passed over lately" in run("status", url=url).stdout
    assert run("history", "--kind", "hole", url=url).exit_code == 2
