"""Events of the fleet: at once after a change, and at least once a second."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ureplicator_common.znode_contents import TopicIntent
from ureplicator_controller.api.lag_collection.cache import FRESH_S
from ureplicator_controller.api.services.event_feed import ALIVE_S, EventFeed
from ureplicator_controller.api.serving.streams import FEED
from ureplicator_testkit.control.rest_fixture import RestFixture
from ureplicator_testkit.servers.processes import eventually


@pytest.fixture
def feed(rest: RestFixture) -> EventFeed:
    found: EventFeed = rest.app.extensions[FEED]
    rest.put_leader()
    rest.put_intent("orders", TopicIntent(1, 1, target_topic="orders"))
    settle(rest, found)
    return found


def settle(rest: RestFixture, feed: EventFeed) -> None:
    """Wait until the first collection of lag is known, and tell it."""
    eventually(lambda: feed.present().data["lagAgeSeconds"] is not None, 5, "lag is collected")
    feed.poll()


def parts(encoded: bytes) -> tuple[str, dict[str, Any]]:
    """Name and data of one event."""
    name, data, *end = encoded.decode().split("\n")
    assert end == ["", ""]
    assert (name[:7], data[:6]) == ("event: ", "data: ")
    return name[7:], json.loads(data[6:])


def test_a_fleet_that_stays_is_told_once_a_second(rest: RestFixture, feed: EventFeed) -> None:
    before = feed.present().data["change"]
    assert feed.poll() == b""
    rest.clock.advance(ALIVE_S)
    assert parts(feed.poll()) == ("state", {"change": before, "lagAgeSeconds": ALIVE_S})
    assert feed.poll() == b""


def test_a_change_is_told_at_once(rest: RestFixture, feed: EventFeed) -> None:
    before = feed.present().data["change"]
    rest.put_intent("payments", TopicIntent(1, 1, target_topic="payments"))
    name, data = parts(feed.poll())
    assert (name, data["change"]) == ("state", before + 1)
    assert feed.poll() == b""


def test_lag_that_was_collected_again_is_a_change(rest: RestFixture, feed: EventFeed) -> None:
    before = feed.present().data["change"]
    rest.clock.advance(FRESH_S)
    eventually(lambda: feed.present().data["change"] == before + 1, 5, "it is collected again")
    assert parts(feed.poll())[1] == {"change": before + 1, "lagAgeSeconds": 0.0}


def test_a_fleet_that_cannot_be_read_is_a_problem_until_it_can(
    rest: RestFixture, feed: EventFeed
) -> None:
    with rest.zookeeper_unavailable():
        name, data = parts(feed.poll())
        assert name == "problem"
        assert data["detail"] == rest.call("GET", "/overview").get_json()["detail"]
        assert "ZooKeeper is unavailable: " in data["detail"]
        assert feed.poll() == b""
        rest.clock.advance(ALIVE_S)
        assert parts(feed.poll())[0] == "problem"
    assert parts(feed.poll())[0] == "state"


def test_a_client_that_follows_no_stream_gets_the_present_event(
    rest: RestFixture, feed: EventFeed
) -> None:
    response = rest.call("GET", "/events")
    assert response.status_code == 200
    assert response.mimetype == "text/event-stream"
    retry, _, event = response.data.partition(b"\n\n")
    assert retry.startswith(b"retry: ")
    assert parts(event) == (feed.present().name, feed.present().data)
    with rest.zookeeper_unavailable():
        assert b"event: problem" in rest.call("GET", "/events").data
