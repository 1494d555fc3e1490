"""`GET /validation/principals` and `ureplicator routes principals`: what of the source does not follow."""

from __future__ import annotations

import pytest

from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_testkit.control.command import run, serving
from ureplicator_testkit.control.rest_fixture import RestFixture

ALICE = "SCRAM-SHA-256 with 4096 iterations"


@pytest.fixture
def filled(rest: RestFixture) -> RestFixture:
    source, target = rest.principals["source"], rest.principals["target"]
    source.limits = {"user alice": "consumer_byte_rate 9", "user *": "producer_byte_rate 7"}
    target.limits = {"user *": "producer_byte_rate 7", "user own": "producer_byte_rate 1"}
    source.users = {"alice": ALICE, "bob": ALICE}
    target.users = {"bob": "SCRAM-SHA-512 with 4096 iterations"}
    return rest


def test_what_the_target_lacks_or_has_otherwise(filled: RestFixture) -> None:
    shown = filled.call("GET", "/validation/principals").get_json()
    assert shown["notRead"] == []
    assert [
        (principal["kind"], principal["name"], principal["target"])
        for principal in shown["principals"]
    ] == [
        ("quota", "user alice", None),
        ("SCRAM user", "alice", None),
        ("SCRAM user", "bob", "SCRAM-SHA-512 with 4096 iterations"),
    ]


@pytest.mark.parametrize("end", ["source", "target"])
def test_a_cluster_that_shows_none_is_named(filled: RestFixture, end: str) -> None:
    filled.principals[end].failure = ClusterUnavailable("not authorized")
    shown = filled.call("GET", "/validation/principals").get_json()
    (unread,) = shown["notRead"]
    assert (unread["kind"], unread["cluster"]) == ("SCRAM user", end)
    assert [principal["kind"] for principal in shown["principals"]] == ["quota"]


def test_the_command(filled: RestFixture) -> None:
    filled.principals["target"].failure = ClusterUnavailable("not authorized")
    with serving(filled) as url:
        found = run("routes", "principals", url=url)
    assert "user alice" in found.stdout
    assert "SCRAM users of target are not known: not authorized" in found.stderr
