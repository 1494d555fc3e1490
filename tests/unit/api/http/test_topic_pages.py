"""GET /topics with filters and pages."""

from __future__ import annotations

from typing import Any

import pytest

from ureplicator_common.model import Route, TopicKey, TopicState
from ureplicator_common.znode_contents import Switches, TopicIntent
from ureplicator_common.znodes.fleet import encode_switches
from ureplicator_common.znodes.topics import encode_blacklisted
from ureplicator_testkit.control.rest_fixture import ROUTE, NewRest, RestFixture, problem_of

BACK = Route("target", "source")
TWO_ROUTES = (
    {"source": "source", "target": "target"},
    {"source": "target", "target": "source"},
)


@pytest.fixture
def filled(new_rest: NewRest) -> RestFixture:
    rest = new_rest(TWO_ROUTES)
    rest.put_intent("orders-1", TopicIntent(1, 1, target_topic="orders-1"))
    rest.put_intent("orders-2", TopicIntent(1, 1, state=TopicState.PAUSED, target_topic="orders-2"))
    rest.put_intent(
        "clicks", TopicIntent(1, 1, stopped="the source topic was deleted", target_topic="clicks")
    )
    rest.put_intent("spam", TopicIntent(1, 1, target_topic="spam"))
    rest.put_intent("old", TopicIntent(1, 1, state=TopicState.DELETING, target_topic="old"))
    rest.put_intent("orders-1", TopicIntent(1, 1, target_topic="orders-1"), route=BACK)
    rest.put_intent("back", TopicIntent(1, 1, target_topic="back"), route=BACK)
    rest.put(rest.paths.blacklisted(TopicKey(ROUTE, "spam")), encode_blacklisted("r"))
    return rest


def shown(rest: RestFixture, query: str) -> Any:
    return rest.call("GET", f"/topics?{query}").get_json()


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("state=active", "back orders-1"),
        ("state=paused", "orders-2"),
        ("state=stopped", "clicks"),
        ("state=blacklisted", "spam"),
        ("state=deleting", "old"),
        ("route=target.source", "back orders-1"),
        ("src=source", "clicks old orders-1 orders-2 spam"),
        ("src=source&route=target.source", ""),
        ("match=orders-*", "orders-1 orders-2"),
        ("match=orders", ""),
        ("match=*.*", ""),
        ("match=order?-2&state=paused", "orders-2"),
    ],
)
def test_filters(filled: RestFixture, query: str, names: str) -> None:
    assert shown(filled, query) == {"topics": names.split()}


def test_the_state_is_the_one_that_takes_effect(filled: RestFixture) -> None:
    switches = Switches(paused_routes=frozenset({ROUTE}))
    filled.put(filled.paths.settings, encode_switches(switches))
    assert shown(filled, "state=active") == {"topics": ["back", "orders-1"]}
    assert shown(filled, "state=active&route=source.target") == {"topics": []}


@pytest.mark.parametrize("limit", [1, 2, 3, 6, 7])
def test_pages_hold_every_name_once(filled: RestFixture, limit: int) -> None:
    everything = shown(filled, "")["topics"]
    names: list[str] = []
    query = f"limit={limit}"
    while True:
        page = shown(filled, query)
        assert 0 < len(page["topics"]) <= limit
        names += page["topics"]
        if "next" not in page:
            break
        assert page["next"] == names[-1]
        query = f"limit={limit}&after={page['next']}"
    assert names == everything


@pytest.mark.parametrize(
    "query", ["state=running", "limit=0", "limit=x", "route=west", "match=", "page=2"]
)
def test_refusals(filled: RestFixture, query: str) -> None:
    problem_of(filled.call("GET", f"/topics?{query}"), 400)
