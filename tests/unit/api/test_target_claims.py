"""Topics that another fleet copies to: refused by REST before anything is created."""

from __future__ import annotations

import pytest

from ureplicator_common.kafka import ClusterUnavailable, TopicRefused
from ureplicator_common.kafka.claim_records import Claim
from ureplicator_testkit.control.rest_fixture import NewRest, RestFixture, problem_of

CLAIMING = ({"source": "source", "target": "target", "claim_targets": True},)
THEIRS = Claim("other", "orders", "far.target", "far-id", "orders")


@pytest.fixture
def claiming(new_rest: NewRest) -> RestFixture:
    return new_rest(routes=CLAIMING)


def test_added_topic_is_claimed(claiming: RestFixture) -> None:
    assert claiming.call("POST", "/topics", json={"topic": "orders"}).status_code == 201
    holder = claiming.claims["target"].log().read().holder("orders")
    assert holder == Claim("test", "orders", "source.target", "source-id", "orders")


def test_topic_of_another_fleet_is_a_conflict_and_creates_nothing(claiming: RestFixture) -> None:
    claiming.claims["target"].log().write(THEIRS)
    response = claiming.call("POST", "/topics", json={"topic": "orders"})
    problem = problem_of(response, 409)
    assert problem["field"] == "topic"
    assert "already the target of fleet other (far.target/orders)" in problem["detail"]
    assert claiming.intent("orders") is None
    assert "orders" not in claiming.target.topics()


def test_imported_topic_of_another_fleet_is_a_conflict(claiming: RestFixture) -> None:
    claiming.claims["target"].log().write(THEIRS)
    given = {"partitions": 1, "initialPartitions": 1, "state": "active"}
    response = claiming.call("PUT", "/import/topics/orders?src=source&dst=target", json=given)
    assert "fleet other" in problem_of(response, 409)["detail"]
    assert claiming.intent("orders") is None


def test_a_dry_run_sees_the_claims_of_other_fleets_and_writes_none(claiming: RestFixture) -> None:
    log = claiming.claims["target"].log()
    given = {"partitions": 1, "initialPartitions": 1, "state": "active"}
    path = "/import/topics/orders?src=source&dst=target&dry_run=true"
    assert claiming.call("PUT", path, json=given).status_code == 200
    assert log.read().holder("orders") is None
    log.write(THEIRS)
    assert "fleet other" in problem_of(claiming.call("PUT", path, json=given), 409)["detail"]
    assert claiming.call("PUT", f"{path}&from_fleet=other", json=given).status_code == 200
    assert log.read().holder("orders") == THEIRS


def test_topic_that_another_fleet_gives_up_is_imported(claiming: RestFixture) -> None:
    claiming.claims["target"].log().write(THEIRS)
    given = {"partitions": 1, "initialPartitions": 1, "state": "paused"}
    path = "/import/topics/orders?src=source&dst=target&from_fleet="
    assert "fleet other" in problem_of(claiming.call("PUT", f"{path}x", json=given), 409)["detail"]
    assert claiming.call("PUT", f"{path}other", json=given).status_code == 200
    assert claiming.intent("orders") is not None
    others = claiming.claims["target"].log().read().others("other", "orders")
    assert [claim.fleet for claim in others] == ["test"]


def test_copy_of_another_fleet_is_not_copied_back(claiming: RestFixture) -> None:
    origin = Claim("other", "orders", "target.source", "target-id", "origin")
    claiming.claims["source"].log().write(origin)
    response = claiming.call("POST", "/topics", json={"topic": "orders"})
    assert "replication loop" in problem_of(response, 409)["detail"]


def test_cluster_whose_claims_cannot_be_read_is_a_503(claiming: RestFixture) -> None:
    claiming.claims["target"].failure = ClusterUnavailable("target: no response")
    response = claiming.call("POST", "/topics", json={"topic": "orders"})
    assert "no response" in problem_of(response, 503)["detail"]


def test_target_that_refuses_claims_is_named(claiming: RestFixture) -> None:
    claiming.claims["target"].failure = TopicRefused("topic ureplicator-claims: not authorized")
    response = claiming.call("POST", "/topics", json={"topic": "orders"})
    assert response.status_code in (400, 409, 422)
    assert "not authorized" in response.get_json()["detail"]


def test_claims_are_listed_and_those_of_a_fleet_that_is_gone_withdrawn(
    claiming: RestFixture,
) -> None:
    log = claiming.claims["target"].log()
    log.write(Claim("gone", "orders", "old.target", "old-id", "orders"))
    log.write(THEIRS)
    log.write(Claim("other", "ships", "far.target", "far-id", "ships", since_ms=5))
    listed = claiming.call("GET", "/claims").get_json()
    shown = [(claim["targetTopic"], claim["fleet"], claim["holds"]) for claim in listed["claims"]]
    assert shown == [("orders", "gone", True), ("orders", "other", False), ("ships", "other", True)]
    assert listed["claims"][2] == {
        "cluster": "target",
        "targetTopic": "ships",
        "fleet": "other",
        "route": "far.target",
        "sourceTopic": "ships",
        "sourceCluster": "far-id",
        "sinceMs": 5,
        "holds": True,
    }
    done = claiming.call("DELETE", "/claims/orders?fleet=gone").get_json()
    assert done["withdrawn"] == listed["claims"][0]
    left = claiming.call("GET", "/claims").get_json()["claims"]
    assert [(claim["targetTopic"], claim["holds"]) for claim in left] == [
        ("orders", True),
        ("ships", True),
    ]
    problem_of(claiming.call("DELETE", "/claims/orders?fleet=gone"), 404)
    assert claiming.call("DELETE", "/claims/orders?fleet=other").status_code == 200
    assert claiming.call("POST", "/topics", json={"topic": "orders"}).status_code == 201


def test_own_claims_are_not_withdrawn_by_hand(claiming: RestFixture) -> None:
    claiming.call("POST", "/topics", json={"topic": "orders"})
    problem = problem_of(claiming.call("DELETE", "/claims/orders?fleet=test"), 409)
    assert (problem["field"], problem["hint"]) == ("fleet", "delete the topic")
    assert claiming.claims["target"].log().read().holder("orders") is not None


def test_a_cluster_without_its_claims_is_named(claiming: RestFixture) -> None:
    claiming.claims["target"].failure = ClusterUnavailable("target: no response")
    listed = claiming.call("GET", "/claims").get_json()
    unread = {"cluster": "target", "reason": "target: no response"}
    assert listed == {"claims": [], "notRead": [unread]}
    problem_of(claiming.call("DELETE", "/claims/orders?fleet=other"), 503)


def test_passes_over_the_claims_are_shown_with_the_route(claiming: RestFixture) -> None:
    (sync,) = claiming.call("GET", "/routes").get_json()["routes"]["source.target"]["syncs"]
    assert sync["kind"] == "claims"
