"""`ureplicator topics validate`."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from ureplicator_common.znode_contents import TopicIntent
from ureplicator_testkit.control.command import run, serving
from ureplicator_testkit.control.rest_fixture import RestFixture


@pytest.fixture
def url(rest: RestFixture) -> Iterator[str]:
    with serving(rest) as url:
        yield url


def test_differences(rest: RestFixture, url: str) -> None:
    rest.source.put("orders", 4, configs={"retention.ms": "9"})
    rest.target.put("orders", 2, configs={"segment.ms": "5"})
    rest.target.defaults = {"retention.ms": "7"}
    rest.source.defaults = {"segment.ms": "6"}
    rest.put_intent("orders", TopicIntent(2, 2, whole=True, target_topic="orders"))
    rest.put_intent("quiet", TopicIntent(1, 1, target_topic="quiet"))
    found = run("topics", "validate", url=url)
    assert found.exit_code == 0
    lines = [" ".join(line.replace("│", " ").split()) for line in found.stdout.splitlines()]
    assert "source.target/orders orders partitions 4 2 4" in lines
    left = "left: sync_topic_configs is not enabled"
    assert f"source.target/orders orders retention.ms 9 7 {left}" in lines
    assert f"source.target/orders orders segment.ms 6 5 {left}" in lines
    assert "quiet not compared: target topic quiet does not exist" in found.stderr
    shown = json.loads(run("topics", "validate", "--json", url=url).stdout)
    assert shown["numTopics"] == 2
