"""Byte limits of a slot over whole lines: what is fetched, with limits set, changed and removed live."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from ureplicator_common.model import HandlerSettings, Limited, RouteSettings, TopicKey, WorkerId
from ureplicator_testkit.copier.line import ROUTE, Line, MakeLine, assert_same, fill
from ureplicator_worker.copier.raw.byte_limits import BURST_S

OF_ROUTE = Limited.route(ROUTE)
OF_WORKER = Limited.worker(WorkerId("w"))
BATCH_BYTES = 20_200
"""Of `fill`."""
RATE = 200_000
SKIP_S = 0.02
IDENTITY = HandlerSettings("t", "ureplicator_worker.handlers:identity")


def limit(line: Line, rates: Mapping[Limited, int]) -> None:
    line.limits.change(line.limits.version + 1, rates, line.now_s)


def fetched(line: Line, topic: str) -> int:
    keys = [key for key in line.source.logs if key[0] == topic]
    return (
        sum(line.report(part).bytes for part in line.copier.holder.owned if part.topic == topic)
        if keys
        else 0
    )


def pass_time(line: Line, seconds: float) -> None:
    line.turns(round(seconds / SKIP_S), skip_s=SKIP_S)


def rate_of(line: Line, topic: str, seconds: float = 10.0) -> float:
    before = fetched(line, topic)
    pass_time(line, seconds)
    return (fetched(line, topic) - before) / seconds


@pytest.mark.parametrize("limited", [OF_ROUTE, OF_WORKER, Limited.topic(TopicKey(ROUTE, "t"))])
@pytest.mark.parametrize("nodes", [1, 3])
def test_a_limit_is_kept_raised_and_removed(make: MakeLine, limited: Limited, nodes: int) -> None:
    line = make(4, nodes=nodes)
    limit(line, {limited: RATE})
    for number in range(4):
        fill(line, ("t", number), 120)
    parts = line.add(0, 1, 2, 3)
    pass_time(line, 3.0)
    assert abs(rate_of(line, "t") / RATE - 1) < 0.1
    limit(line, {limited: 3 * RATE})
    pass_time(line, 1.0)
    assert abs(rate_of(line, "t", 4.0) / (3 * RATE) - 1) < 0.1
    figures = [line.report(part).bytes for part in parts]
    assert max(figures) < 2 * min(figures), "partitions share the limit"
    limit(line, {})
    line.run(lambda: all(line.copied(part) for part in parts))
    for number in range(4):
        assert_same(line, ("t", number))


def test_only_the_limited_topic_is_held_back(make: MakeLine) -> None:
    line = make(2, topics=("t", "u"))
    limit(line, {Limited.topic(TopicKey(ROUTE, "t")): RATE})
    for topic in ("t", "u"):
        for number in range(2):
            fill(line, (topic, number), 300)
    line.add(0, 1)
    free = line.add(0, 1, topic="u")
    line.run(lambda: all(line.copied(part) for part in free), skip_s=SKIP_S)
    assert fetched(line, "t") < fetched(line, "u") / 4
    assert abs(rate_of(line, "t") / RATE - 1) < 0.1
    fill(line, ("u", 0), 10)
    line.run(lambda: line.copied(free[0]), skip_s=SKIP_S)


def test_a_limit_below_the_size_of_a_batch_starves_no_partition(make: MakeLine) -> None:
    line = make(3)
    rate = BATCH_BYTES // 4
    limit(line, {OF_ROUTE: rate})
    for number in range(3):
        fill(line, ("t", number), 100)
    parts = line.add(0, 1, 2)
    pass_time(line, 120.0)
    figures = [line.report(part).bytes for part in parts]
    assert min(figures) >= 5 * BATCH_BYTES
    assert sum(figures) <= rate * (120 + BURST_S) + 4 * BATCH_BYTES


def test_a_quiet_partition_of_a_limited_topic_gets_through(make: MakeLine) -> None:
    line = make(64)
    limit(line, {Limited.topic(TopicKey(ROUTE, "t")): RATE})
    fill(line, ("t", 7), 400)
    part = line.add(*range(64))[7]
    pass_time(line, 2.0)
    before = line.report(part).bytes
    pass_time(line, 10.0)
    assert abs((line.report(part).bytes - before) / (10.0 * RATE) - 1) < 0.1


def test_topics_with_a_handler_are_limited_too(make: MakeLine) -> None:
    line = make(1, settings=RouteSettings(handlers=(IDENTITY,)))
    limit(line, {OF_ROUTE: RATE})
    fill(line, ("t", 0), 300)
    line.add(0)
    pass_time(line, 2.0)
    assert abs(rate_of(line, "t") / RATE - 1) < 0.1
