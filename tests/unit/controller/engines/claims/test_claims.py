"""Claims of several fleets on the topics of one cluster: at most one of them may copy to a topic."""

from __future__ import annotations

import itertools
import json

import pytest

from ureplicator_common.config.route import RouteConfig
from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_common.kafka.claim_records import (
    Claim,
    Claims,
    ClaimsUnreadable,
    encode_key,
    encode_value,
)
from ureplicator_common.model import Route, TopicKey
from ureplicator_controller.engines.claims.between_fleets import ClaimRefused, FleetClaims
from ureplicator_testkit.control.manual_clock import ManualClock
from ureplicator_testkit.kafka.claims.memory import MemoryClaimTopic, claims_of

FORTH, BACK = Route("a", "b"), Route("b", "a")
ON = Route("b", "c")


@pytest.fixture
def clusters() -> dict[str, MemoryClaimTopic]:
    return {name: MemoryClaimTopic(f"id-{name}") for name in "abc"}


def fleet(
    name: str, clusters: dict[str, MemoryClaimTopic], *routes: Route, claims: bool = True
) -> FleetClaims:
    configs = (
        RouteConfig(source=route.source, target=route.target, claim_targets=claims)
        for route in routes or (FORTH,)
    )
    return claims_of(*configs, clusters=clusters, fleet=name)


def claim(fleet: str, topic: str = "t", *, route: str = "a.b") -> Claim:
    return Claim(fleet, topic, route, "id-a", topic)


def test_second_fleet_is_refused_with_the_name_of_the_first(
    clusters: dict[str, MemoryClaimTopic],
) -> None:
    east, west = fleet("east", clusters), fleet("west", clusters)
    east.take(TopicKey(FORTH, "orders"), "copy.orders")
    with pytest.raises(ClaimRefused) as refused:
        west.take(TopicKey(FORTH, "other"), "copy.orders")
    assert "copy.orders on b is already the target of fleet east (a.b/orders)" in str(refused.value)
    west.take(TopicKey(FORTH, "other"), "copy.other")
    assert len(clusters["b"].records) == 2


def test_own_claim_is_written_once(clusters: dict[str, MemoryClaimTopic]) -> None:
    for _ in range(2):
        fleet("east", clusters).take(TopicKey(FORTH, "t"), "t")
    assert len(clusters["b"].records) == 1


def test_route_that_claims_nothing_asks_nobody(clusters: dict[str, MemoryClaimTopic]) -> None:
    fleet("east", clusters).take(TopicKey(FORTH, "t"), "t")
    quiet = fleet("west", clusters, claims=False)
    before = clusters["b"].requests
    quiet.take(TopicKey(FORTH, "t"), "t")
    assert clusters["b"].requests == before


@pytest.mark.parametrize("order", [*itertools.permutations("xyz")])
@pytest.mark.parametrize("compacted", [False, True])
def test_of_fleets_that_claim_at_the_same_time_exactly_one_goes_on(
    clusters: dict[str, MemoryClaimTopic], order: tuple[str, ...], compacted: bool
) -> None:
    """Each has read before any of them writes; the last one to read writes first."""
    winners: list[str] = []

    def take(names: tuple[str, ...]) -> None:
        if names:
            clusters["b"].before_write = lambda: take(names[1:])
            try:
                fleet(names[0], clusters).take(TopicKey(FORTH, "t"), "t")
            except ClaimRefused:
                return
            winners.append(names[0])

    take(order)
    if compacted:
        clusters["b"].compact()
    assert winners == [order[-1]]
    holder = clusters["b"].log().read().holder("t")
    assert holder is not None
    assert holder.fleet == order[-1]
    assert clusters["b"].log().read().others(order[-1], "t") == [], "the others withdrew"


def test_topic_of_a_claim_that_was_withdrawn_is_free(clusters: dict[str, MemoryClaimTopic]) -> None:
    fleet("east", clusters).take(TopicKey(FORTH, "t"), "t")
    clusters["b"].log().withdraw(claim("east"))
    fleet("west", clusters).take(TopicKey(FORTH, "t"), "t")
    clusters["b"].compact()
    with pytest.raises(ClaimRefused):
        fleet("east", clusters).take(TopicKey(FORTH, "t"), "t")


def test_copy_of_another_fleet_is_not_copied_back(clusters: dict[str, MemoryClaimTopic]) -> None:
    fleet("east", clusters).take(TopicKey(FORTH, "orders"), "copy.orders")
    west = fleet("west", clusters, BACK)
    with pytest.raises(
        ClaimRefused, match=r"replication loop: copy\.orders on b is a copy of orders"
    ):
        west.take(TopicKey(BACK, "copy.orders"), "orders")
    west.take(TopicKey(BACK, "others"), "others")


def test_loop_over_three_clusters_and_three_fleets_is_found(
    clusters: dict[str, MemoryClaimTopic],
) -> None:
    fleet("one", clusters, FORTH).take(TopicKey(FORTH, "t"), "t")
    fleet("two", clusters, ON).take(TopicKey(ON, "t"), "t")
    home = Route("c", "a")
    three = fleet("three", clusters, home, FORTH)
    with pytest.raises(ClaimRefused, match="replication loop"):
        three.take(TopicKey(home, "t"), "t")


def test_cluster_that_does_not_respond_ends_the_search_for_origins_only(
    clusters: dict[str, MemoryClaimTopic], caplog: pytest.LogCaptureFixture
) -> None:
    fleet("one", clusters, FORTH).take(TopicKey(FORTH, "t"), "t")
    clusters["a"].failure = ClusterUnavailable("a is away")
    fleet("two", clusters, ON, FORTH).take(TopicKey(ON, "t"), "t")
    assert "origin of copies not looked for on a: a is away" in caplog.text


def test_cluster_of_the_route_that_does_not_respond_refuses(
    clusters: dict[str, MemoryClaimTopic],
) -> None:
    clusters["b"].failure = ClusterUnavailable("b is away")
    with pytest.raises(ClusterUnavailable):
        fleet("one", clusters).take(TopicKey(FORTH, "t"), "t")


def test_claim_tells_where_from_and_when(clusters: dict[str, MemoryClaimTopic]) -> None:
    config = RouteConfig(source="a", target="b", claim_targets=True)
    clock = ManualClock()
    clock.advance(5)
    claims_of(config, clusters=clusters, fleet="f", clock=clock).take(TopicKey(FORTH, "t"), "x")
    record = clusters["b"].records[0]
    assert record is not None
    assert json.loads(record[0]) == {"targetTopic": "x", "fleet": "f"}
    assert json.loads(record[1] or b"") == {
        "route": "a.b",
        "sourceCluster": "id-a",
        "sourceTopic": "t",
        "sinceMs": clock.wall_ms(),
    }


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, None),
        (b"", b"{}"),
        (b"[]", b"{}"),
        (b"\xff", b"{}"),
        (b'{"targetTopic":"t"}', b"{}"),
        (b'{"targetTopic":"t","fleet":7}', b"{}"),
        (encode_key(claim("f")), b"{}"),
        (encode_key(claim("f")), b"nonsense"),
    ],
)
def test_record_that_is_no_claim_is_named_by_its_offset(
    key: bytes | None, value: bytes | None
) -> None:
    with pytest.raises(ClaimsUnreadable, match="offset 17 is no claim"):
        Claims().add(17, key, value)


def test_fields_of_a_later_version_are_passed_over() -> None:
    claims = Claims()
    value = {**json.loads(encode_value(claim("f"))), "more": [1]}
    claims.add(0, encode_key(claim("f")), json.dumps(value).encode())
    assert claims.holder("t") == claim("f")
