"""Positions are an addition to a page: nothing may wait for them long."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence

from ureplicator_common.kafka import ClusterUnavailable, Position
from ureplicator_common.model import Route, TopicIntent, TopicKey, position_group
from ureplicator_controller.api.positions import ANSWER_S, Positions
from ureplicator_testkit.api_world import ROUTE, World

KEY = TopicKey(Route("a", "b"), "orders")
INTENT = TopicIntent(partitions=2, initial_partitions=2, target_topic="copy")


class SlowReader:
    """Answers when it is told to; remembers from which thread it was asked."""

    def __init__(self) -> None:
        self.answer = threading.Event()
        self.threads: set[int] = set()

    def read(
        self, group: str, wanted: Mapping[str, Sequence[int]]
    ) -> Mapping[tuple[str, int], Position]:
        self.threads.add(threading.get_ident())
        self.answer.wait(10)
        return {("copy", 0): Position(offset=5), ("copy", 1): Position(offset=-1)}


def test_a_silent_target_has_an_end_and_comes_back() -> None:
    reader = SlowReader()
    positions = Positions(lambda cluster: reader, fleet="f")
    began_s = time.monotonic()
    assert positions.of(KEY, INTENT) == (None, f"b: no answer within {ANSWER_S:g} s")
    assert time.monotonic() - began_s < ANSWER_S + 1
    reader.answer.set()
    assert positions.of(KEY, INTENT) == ({"0": 5, "1": None}, "")
    assert len(reader.threads) == 1
    positions.close()


def test_a_controller_without_a_reader() -> None:
    known, reason = Positions(None, fleet="f").of(KEY, INTENT)
    assert known is None
    assert reason


def test_the_position_of_one_partition(world: World) -> None:
    world.intend("orders", TopicIntent(4, 4))
    group = position_group(fleet="test", route=ROUTE)
    world.positions.stored[(group, "orders", 2)] = Position(offset=41)
    shown = {"topic": "orders", "partition": 2, "route": "source.target", "position": 41}
    assert world.call("GET", "/offset/orders/2").get_json() == shown
    assert world.call("GET", "/offset/orders/3").get_json()["position"] is None


def test_a_position_is_null_with_the_target_away(world: World) -> None:
    world.intend("orders", TopicIntent(4, 4))
    with world.positions.failing(ClusterUnavailable("t:1 refused")):
        shown = world.call("GET", "/offset/orders/2").get_json()
    assert shown["position"] is None
    assert "t:1 refused" in shown["positionReason"]
