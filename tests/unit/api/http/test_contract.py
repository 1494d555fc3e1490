"""uReplicator's paths and verbs, as one table: responses in the plainest cases.

`orders` (4 partitions) and `quiet` (1) are in the source; only `orders` is whitelisted, with 3.
"""

from __future__ import annotations

from typing import Any

import pytest

from ureplicator_common.znode_contents import TopicIntent
from ureplicator_testkit.control.rest_fixture import RestFixture, problem_of

JSON = "application/json"

TABLE: list[tuple[str, str, Any, int, str]] = [
    ("GET", "/topics", None, 200, JSON),
    ("GET", "/topics?state=active&match=ord*&limit=1", None, 200, JSON),
    ("GET", "/topics?state=running", None, 400, ""),
    ("PUT", "/import/topics", {"topics": {"quiet": {}}, "remove": ["orders"]}, 200, JSON),
    ("PUT", "/import/topics", None, 400, ""),
    ("GET", "/topics/orders", None, 200, JSON),
    ("GET", "/topics/quiet", None, 404, ""),
    ("POST", "/topics", {"topic": "quiet", "numPartitions": 1}, 201, JSON),
    ("POST", "/topics", {"topic": "quiet", "numPartitions": "1"}, 201, JSON),
    ("POST", "/topics", {"topic": "quiet"}, 201, JSON),
    ("POST", "/topics", {"topic": "quiet", "numPartitions": 2}, 400, ""),
    ("POST", "/topics", {"topic": "orders", "numPartitions": 4}, 409, ""),
    ("POST", "/topics", {"topic": "nowhere", "numPartitions": 1}, 404, ""),
    ("POST", "/topics", {}, 400, ""),
    ("POST", "/topics", None, 400, ""),
    ("POST", "/topics/quiet", None, 201, JSON),
    ("POST", "/topics/orders", None, 409, ""),
    ("POST", "/topics/nowhere", None, 404, ""),
    ("PUT", "/topics", {"topic": "orders", "numPartitions": 4}, 200, JSON),
    ("PUT", "/topics", {"topic": "orders", "numPartitions": 3}, 200, JSON),
    ("PUT", "/topics", {"topic": "orders", "numPartitions": 2}, 400, ""),
    ("PUT", "/topics", {"topic": "orders", "numPartitions": 5}, 400, ""),
    ("PUT", "/topics", {"topic": "quiet", "numPartitions": 1}, 404, ""),
    ("PUT", "/topics/orders", {"numPartitions": 4}, 200, JSON),
    ("DELETE", "/topics/orders", None, 200, JSON),
    ("DELETE", "/topics/quiet", None, 404, ""),
    ("GET", "/offset/orders/0", None, 200, JSON),
    ("GET", "/offset/orders/3", None, 400, ""),
    ("GET", "/offset/orders/x", None, 400, ""),
    ("GET", "/offset/quiet/0", None, 404, ""),
    ("GET", "/history", None, 200, JSON),
    ("GET", "/history?topic=orders&limit=5", None, 200, JSON),
    ("GET", "/history?limit=0", None, 400, ""),
    ("GET", "/history?limit=all", None, 400, ""),
    ("POST", "/instances", None, 200, JSON),
    ("POST", "/rebalance", None, 200, JSON),
    ("POST", "/rebalance?dry_run=maybe", None, 400, ""),
    ("POST", "/rebalance?dry_run=true", None, 503, ""),
    ("POST", "/admin/enable_autobalancing", None, 200, JSON),
    ("POST", "/admin/disable_autobalancing", None, 200, JSON),
    ("POST", "/admin/other_autobalancing", None, 404, ""),
    ("GET", "/admin/autobalancing_status", None, 200, JSON),
    ("POST", "/admin/freeze", None, 200, JSON),
    ("POST", "/admin/unfreeze", None, 200, JSON),
    ("GET", "/admin/freeze", None, 200, JSON),
    ("POST", "/topics/orders/pause", None, 200, JSON),
    ("POST", "/topics/orders/resume", None, 200, JSON),
    ("POST", "/topics/quiet/pause", None, 404, ""),
    ("GET", "/topics/orders/pause", None, 404, ""),
    ("GET", "/blacklist", None, 200, JSON),
    ("POST", "/blacklist?topic=orders&partition=0&opt=blacklist", None, 200, JSON),
    ("POST", "/blacklist?topic=orders&partition=0&opt=whitelist", None, 400, ""),
    ("POST", "/blacklist?topic=orders&partition=3&opt=blacklist", None, 400, ""),
    ("POST", "/blacklist?topic=orders&partition=x&opt=blacklist", None, 400, ""),
    ("POST", "/blacklist?topic=orders&partition=0&opt=forget", None, 400, ""),
    ("POST", "/blacklist", None, 400, ""),
    ("POST", "/blacklist", {"topic": "orders", "partition": 1, "opt": "blacklist"}, 200, JSON),
    ("POST", "/blacklist", {"topic": "quiet", "partition": 0, "opt": "blacklist"}, 404, ""),
    ("GET", "/positions/orders", None, 200, JSON),
    ("GET", "/positions/quiet", None, 404, ""),
    ("POST", "/positions/orders", {"to": "earliest"}, 503, ""),
    ("POST", "/positions/orders", {}, 400, ""),
    ("POST", "/positions/orders", None, 400, ""),
    ("POST", "/positions/quiet", {"to": "earliest"}, 404, ""),
    ("POST", "/positions/orders?dry_run=maybe", {"to": "earliest"}, 400, ""),
    ("DELETE", "/positions/orders", None, 503, ""),
    ("DELETE", "/positions/orders?partition=3", None, 400, ""),
    ("DELETE", "/positions/quiet", None, 404, ""),
    ("GET", "/positions", None, 404, ""),
    ("GET", "/instances", None, 200, JSON),
    ("GET", "/instances/w1", None, 200, JSON),
    ("GET", "/instances/w9", None, 404, ""),
    ("DELETE", "/instances/w1", None, 200, JSON),
    ("DELETE", "/instances/w9", None, 404, ""),
    ("DELETE", "/instances", None, 405, ""),
    ("POST", "/instances/w1", None, 200, JSON),
    ("POST", "/instances/w9", None, 404, ""),
    ("POST", "/instances/w9/forget", None, 404, ""),
    ("POST", "/instances/w1/forget", None, 409, ""),
    ("GET", "/validation", None, 200, JSON),
    ("GET", "/validation/srcKafka", None, 200, JSON),
    ("GET", "/validation/topics", None, 200, JSON),
    ("GET", "/validation/principals", None, 200, JSON),
    ("GET", "/validation/topics?src=nowhere", None, 404, ""),
    ("PUT", "/routes/source.target/settings", {"settings": {"on_gap": "latest"}}, 200, JSON),
    ("PUT", "/routes/source.target/settings", {"settings": {"sql": []}}, 400, ""),
    ("PUT", "/routes/source.target/settings", {}, 400, ""),
    ("PUT", "/routes/a.b/settings", {"settings": {"on_gap": "latest"}}, 404, ""),
    ("GET", "/group?name=nobody", None, 404, ""),
    ("GET", "/group", None, 400, ""),
    ("GET", "/groups//x/..", None, 404, ""),
    ("GET", "/cutovers", None, 200, JSON),
    ("GET", "/cutovers?src=source", None, 400, ""),
    ("GET", "/cutovers/move", None, 404, ""),
    ("POST", "/cutovers/move", {"topics": ["orders"]}, 200, JSON),
    ("POST", "/cutovers/move", {"topics": ["orders"], "groups": ["billing"]}, 200, JSON),
    ("POST", "/cutovers/move", {"topics": ["(orders"]}, 400, ""),
    ("POST", "/cutovers/move", None, 400, ""),
    ("POST", "/cutovers/move?src=nowhere", {"topics": ["orders"]}, 404, ""),
    ("POST", "/cutovers/a%20b", {"topics": ["orders"]}, 400, ""),
    ("POST", "/cutovers/move/rehearse", None, 404, ""),
    ("POST", "/cutovers/move/start", None, 409, ""),
    ("POST", "/cutovers/move/start?plan=1", None, 400, ""),
    ("POST", "/cutovers/move/start?confirm=true", None, 404, ""),
    ("POST", "/cutovers/move/abort", None, 404, ""),
    ("POST", "/cutovers/move/back?confirm=true", None, 404, ""),
    ("DELETE", "/cutovers/move", None, 405, ""),
    ("GET", "/claims", None, 200, JSON),
    ("GET", "/claims?dst=nowhere", None, 404, ""),
    ("DELETE", "/claims/orders?fleet=old", None, 404, ""),
    ("DELETE", "/claims/orders", None, 400, ""),
    ("DELETE", "/claims/orders?fleet=test", None, 409, ""),
    ("POST", "/claims", None, 405, ""),
    ("GET", "/overview", None, 200, JSON),
    ("GET", "/events", None, 200, "text/event-stream"),
    ("GET", "/events?since=1", None, 400, ""),
    ("GET", "/overview?src=source", None, 400, ""),
    ("GET", "/noprogress", None, 200, JSON),
    ("GET", "/noprogress?src=nowhere", None, 404, ""),
    ("GET", "/noprogress?since=1", None, 400, ""),
    ("GET", "/admin/workloadinfo", None, 200, JSON),
    ("GET", "/admin/workloadinfo?dst=nowhere", None, 404, ""),
    ("GET", "/health", None, 200, JSON),
    ("GET", "/ready", None, 200, JSON),
    ("GET", "/metrics", None, 200, "text/plain"),
    ("GET", "/", None, 200, "text/html"),
    ("GET", "/list", None, 200, "text/html"),
    ("GET", "/show/topic?topic=orders", None, 200, "text/html"),
    ("GET", "/show/worker?worker=w1", None, 200, "text/html"),
    ("GET", "/show/groups", None, 200, "text/html"),
    ("GET", "/show/cutovers", None, 200, "text/html"),
    ("GET", "/show/cutover?name=move", None, 200, "text/html"),
    ("GET", "/show/nothing", None, 404, ""),
    ("GET", "/controllers", None, 200, JSON),
    ("GET", "/tasks", None, 200, JSON),
    ("GET", "/tasks/none", None, 404, ""),
    ("DELETE", "/tasks/none", None, 404, ""),
    ("GET", "/timeline", None, 200, JSON),
    ("GET", "/usage", None, 200, JSON),
    ("GET", "/usage?dst=nowhere", None, 404, ""),
    ("GET", "/timeline?minutes=0", None, 400, ""),
    ("GET", "/timeline?dst=nowhere", None, 404, ""),
    ("HEAD", "/topics", None, 200, JSON),
    ("DELETE", "/topics", None, 405, ""),
    ("PATCH", "/topics/orders", None, 405, ""),
    ("POST", "/health", None, 405, ""),
    ("POST", "/validation", None, 405, ""),
    ("GET", "/nothing", None, 404, ""),
    ("GET", "/topics/", None, 404, ""),
]


@pytest.mark.parametrize(("method", "path", "body", "status", "kind"), TABLE)
def test_contract(
    rest: RestFixture, method: str, path: str, body: Any, status: int, kind: str
) -> None:
    rest.put_intent("orders", TopicIntent(3, 3, target_topic="orders"))
    rest.add_worker("w1")
    response = rest.call(method, path, json=body) if body is not None else rest.call(method, path)
    if kind:
        assert response.status_code == status, response.text
        assert response.mimetype == kind
    else:
        problem = problem_of(response, status)
        if status == 405:
            assert response.headers["Allow"]
            assert "use " in problem["hint"]


def test_a_bug_shows_no_traceback(rest: RestFixture, caplog: pytest.LogCaptureFixture) -> None:
    def bug(call: str, topic: str) -> None:
        raise RuntimeError("secret detail")

    rest.target.before = bug
    problem = problem_of(rest.call("POST", "/topics/orders"), 500)
    assert "secret" not in str(problem)
    assert "secret detail" in caplog.text
