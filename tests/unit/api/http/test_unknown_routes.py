"""Topics of a route that this REST process does not have in its configuration."""

from __future__ import annotations

import pytest

from ureplicator_common.coordination import Create
from ureplicator_common.model import Route, TopicKey, TopicState
from ureplicator_common.znode_contents import TopicIntent
from ureplicator_common.znodes.topics import decode_intent, encode_intent
from ureplicator_testkit.control.rest_fixture import RestFixture, problem_of

GONE = TopicKey(Route("west", "east"), "ships")
CHOSEN = "?src=west&dst=east"


@pytest.fixture
def removed(rest: RestFixture) -> RestFixture:
    """A topic of a configured route, and one of a route that was removed with its clusters."""
    rest.put_intent("orders", TopicIntent(4, 4, target_topic="orders"))
    path = rest.paths.topic(GONE)
    rest.other_client.ensure(path.rpartition("/")[0])
    data = encode_intent(TopicIntent(2, 2, target_topic="ships"))
    rest.other_client.transact([Create(path, data)])
    return rest


@pytest.mark.parametrize(
    "path",
    [
        "/topics",
        "/topics/orders",
        f"/topics/ships{CHOSEN}",
        "/offset",
        f"/offset{CHOSEN}",
        f"/offset/ships/0{CHOSEN}",
        "/blacklist",
        "/noprogress",
        "/overview",
        "/list",
        "/tasks",
        "/timeline",
        "/usage",
        "/validation",
        "/validation/srcKafka",
        "/metrics",
        "/",
        "/history",
        "/export",
        "/admin/workloadinfo",
        "/instances",
    ],
)
def test_reads_succeed(removed: RestFixture, path: str) -> None:
    assert removed.call("GET", path).status_code == 200


def test_such_a_topic_is_listed_and_shown(removed: RestFixture) -> None:
    assert removed.call("GET", "/topics").get_json()["topics"] == ["orders", "ships"]
    assert removed.call("GET", f"/topics{CHOSEN}").get_json()["topics"] == ["ships"]
    shown = removed.call("GET", "/topics/ships").get_json()
    assert shown["route"] == "west.east"
    assert "not configured" in removed.call("GET", f"/offset/ships/0{CHOSEN}").get_data(
        as_text=True
    )


def test_lag_of_other_topics_is_known(removed: RestFixture) -> None:
    shown = removed.call("GET", "/offset").get_json()["topics"]
    assert [topic["topic"] for topic in shown] == ["orders", "ships"]


def test_such_a_topic_can_be_deleted(removed: RestFixture) -> None:
    forget = removed.call("DELETE", f"/topics/ships{CHOSEN}&positions=forget")
    assert "not configured" in problem_of(forget, 409)["detail"]
    assert removed.call("DELETE", f"/topics/ships{CHOSEN}").status_code == 200
    node = removed.other_client.get(removed.paths.topic(GONE))
    assert node is not None
    assert decode_intent(node.data).state is TopicState.DELETING


def test_a_route_that_no_topic_has_is_refused(removed: RestFixture) -> None:
    problem_of(removed.call("GET", "/topics?src=west&dst=nowhere"), 404)
    problem_of(removed.call("DELETE", "/topics/ships?src=nowhere"), 404)


def test_nothing_is_added_to_such_a_route(removed: RestFixture) -> None:
    problem_of(removed.call("POST", f"/topics/more{CHOSEN}", json={}), 404)
