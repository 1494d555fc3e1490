"""/history over the twins."""

from __future__ import annotations

import pytest

from ureplicator_common.model import Partition, PastMove, WorkerId
from ureplicator_common.znodes import encode_history
from ureplicator_testkit.api_world import ROUTE, World, problem_of


@pytest.fixture
def moved(world: World) -> World:
    """130 moves in three blocks; every tenth of `quiet`, the others of `orders`."""
    for block in range(3):
        moves = [
            PastMove(
                number,
                Partition(ROUTE, "orders" if number % 10 else "quiet", number % 4),
                WorkerId("w1"),
                WorkerId("w2") if number else None,
                "balance",
                1_000 + number,
            )
            for number in range(block * 64, min(130, block * 64 + 64))
        ]
        world.put(world.paths.history_block(block), encode_history(moves))
    return world


def test_the_last_moves_newest_first(moved: World) -> None:
    shown = moved.call("GET", "/history").get_json()["history"]
    assert [each["number"] for each in shown] == list(range(129, 29, -1))
    assert shown[0] == {
        "number": 129,
        "time": 1_129,
        "route": "source.target",
        "topic": "orders",
        "partition": 1,
        "from": "w1",
        "to": "w2",
        "reason": "balance",
    }


def test_of_one_topic_and_so_many(moved: World) -> None:
    shown = moved.call("GET", "/history?topic=quiet&limit=2").get_json()["history"]
    assert [each["number"] for each in shown] == [120, 110]
    assert len(moved.call("GET", "/history?limit=500").get_json()["history"]) == 130
    assert moved.call("GET", "/history?topic=other").get_json() == {"history": []}


@pytest.mark.parametrize(
    ("query", "field"),
    [("limit=-1", "limit"), ("limit=", "limit"), ("limit=²", "limit"), ("topic=..", "topic")],
)
def test_what_is_refused_names_its_field(moved: World, query: str, field: str) -> None:
    assert problem_of(moved.call("GET", f"/history?{query}"), 400)["field"] == field


def test_a_block_that_cannot_be_read_hides_no_other(moved: World) -> None:
    moved.put(moved.paths.history_block(1), b"{")
    assert len(moved.call("GET", "/history?limit=500").get_json()["history"]) == 66
    unreadable = moved.call("GET", "/validation").get_json()["unreadable"]
    assert [each["path"] for each in unreadable] == [moved.paths.history_block(1)]
