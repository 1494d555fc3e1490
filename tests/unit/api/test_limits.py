"""`/limits`: byte limits of routes, topics and workers."""

from __future__ import annotations

from typing import Any

import pytest

from ureplicator_common.model import Limited, Partition, TopicKey, WorkerId
from ureplicator_common.znode_contents import PartitionLoad, Switches, TopicIntent
from ureplicator_common.znodes.fleet import decode_switches, encode_switches
from ureplicator_controller.api.http.models.limits import MAX_LIMITS
from ureplicator_testkit.control.rest_fixture import ROUTE, RestFixture, problem_of

PATHS = {
    "/limits/routes/source.target": Limited.route(ROUTE),
    "/limits/topics/orders": Limited.topic(TopicKey(ROUTE, "orders")),
    "/limits/workers/w1": Limited.worker(WorkerId("w1")),
}
RATE = {"bytesPerSecond": 2_000_000}


def switches(rest: RestFixture) -> Switches:
    node = rest.other_client.get(rest.paths.settings)
    return decode_switches(node.data) if node else Switches()


def listed(rest: RestFixture) -> Any:
    return rest.call("GET", "/limits").get_json()["limits"]


@pytest.mark.parametrize(("path", "limited"), PATHS.items(), ids=["route", "topic", "worker"])
def test_limits_are_set_changed_and_cleared(rest: RestFixture, path: str, limited: Limited) -> None:
    rest.call("POST", "/admin/freeze")
    rest.add_worker("w1")
    rest.put_intent("orders", TopicIntent(4, 4, target_topic="orders"))
    for rate in (2_000_000, 2_000_000, 500_000):
        shown = rest.call("PUT", path, json={"bytesPerSecond": rate}).get_json()
        assert shown.pop("note") == ""
        assert shown == {"kind": limited.kind, "name": limited.name, "bytesPerSecond": rate}
        assert switches(rest).limits == {limited: rate}
        assert listed(rest) == [shown | {"measuredBytesPerSecond": 0}]
    metrics = rest.call("GET", "/metrics").text
    labels = f'fleet="test",kind="{limited.kind}",name="{limited.name}"'
    assert f"ureplicator_limit_bytes_per_second{{{labels}}} 500000.0" in metrics
    for _ in range(2):
        shown = rest.call("DELETE", path).get_json()
        assert shown.pop("note") == ""
        assert shown == {"kind": limited.kind, "name": limited.name, "bytesPerSecond": None}
        assert listed(rest) == []
    assert switches(rest).frozen


def test_measured_rates_are_summed_over_workers_and_slots(rest: RestFixture) -> None:
    for path in PATHS:
        rest.call("PUT", path, json=RATE)
    for id in ("w1", "w2"):
        rest.add_worker(id)
        loads = {
            Partition(ROUTE, topic, number): PartitionLoad(bytes_per_s=1_000, slot=number)
            for topic in ("orders", "quiet")
            for number in (0, 1)
        }
        rest.put_loads(id, loads)
    measured = {limit["kind"]: limit["measuredBytesPerSecond"] for limit in listed(rest)}
    assert measured == {"route": 8_000, "topic": 4_000, "worker": 4_000}


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/limits/routes/north.south", RATE, 404),
        ("/limits/topics/no topic", RATE, 400),
        ("/limits/topics/orders?src=north", RATE, 404),
        ("/limits/workers/..%2fx", RATE, 400),
        ("/limits/topics/orders", None, 400),
        ("/limits/topics/orders", {}, 400),
        ("/limits/topics/orders", {"bytesPerSecond": 0}, 400),
        ("/limits/topics/orders", {"bytesPerSecond": 9_999}, 400),
        ("/limits/topics/orders", {"bytesPerSecond": 10**12 + 1}, 400),
        ("/limits/topics/orders", {"bytesPerSecond": 20_000.5}, 400),
        ("/limits/topics/orders", {"bytesPerSecond": True}, 400),
        ("/limits/topics/orders", {"bytes": 20_000}, 400),
    ],
)
def test_refusals(rest: RestFixture, path: str, body: Any, status: int) -> None:
    problem_of(rest.call("PUT", path, json=body), status)
    assert switches(rest).limits == {}


def test_the_number_of_limits_is_bounded(rest: RestFixture) -> None:
    limits = {Limited.worker(WorkerId(f"w{number}")): 10_000 for number in range(MAX_LIMITS)}
    rest.put(rest.paths.settings, encode_switches(Switches(limits=limits)))
    problem_of(rest.call("PUT", "/limits/topics/orders", json=RATE), 409)
    assert rest.call("PUT", "/limits/workers/w7", json=RATE).status_code == 200
    rest.call("DELETE", "/limits/workers/w8")
    assert rest.call("PUT", "/limits/topics/orders", json=RATE).status_code == 200


def test_a_precondition_names_the_state_that_was_seen(rest: RestFixture) -> None:
    seen = rest.call("GET", "/limits").headers["ETag"]
    rest.call("POST", "/admin/freeze")
    refused = rest.call("PUT", "/limits/workers/w1", json=RATE, headers={"If-Match": seen})
    problem_of(refused, 412)
