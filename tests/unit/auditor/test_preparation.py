"""Comparisons of an auditor: the settings of both topics, the route, and what cannot be compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from ureplicator_common.audits import OffsetRange, RequestedAudit, TopicAudit, VerifiedRange
from ureplicator_common.config.settings import Settings
from ureplicator_common.errors import PermanentError
from ureplicator_common.kafka import ClusterUnavailable, Position
from ureplicator_common.kafka.provenance import Provenance, SameOffsets
from ureplicator_common.kafka.transactions.visibility import ATTEMPTS, PAUSE_S
from ureplicator_common.model import Delivery, Route, RouteSettings, TopicKey, position_group
from ureplicator_common.znode_contents import TopicIntent
from ureplicator_testkit.kafka.clients import (
    MemoryLogReader,
    MemoryPositionReader,
    MemoryTopicAdmin,
)
from ureplicator_worker.audit.core.claims import UNCLAIMED, Claim
from ureplicator_worker.audit.result import AuditRequest, PartitionRange
from ureplicator_worker.auditor import preparation
from ureplicator_worker.auditor.preparation import (
    Preparation,
    Topic,
    continuous_routes,
    next_first,
)

KEY = TopicKey(Route("west", "east"), "orders")
INTENT = TopicIntent(2, 2, target_topic="w.orders", source_topic_id="s", target_topic_id="t")
WANTED = RequestedAudit("r1", 5, {1: OffsetRange(4, 9), 0: OffsetRange(2, 7)})


def settings(**route: Any) -> Settings:
    return Settings.model_validate(
        {
            "fleet": "test",
            "zookeeper": {"hosts": "z:1"},
            "clusters": {name: {"bootstrap.servers": f"{name}:1"} for name in ("west", "east")},
            "routes": [{"source": "west", "target": "east", **route}],
            "audit": {"bytes_per_s": 70_000},
        }
    )


class Clusters:
    def __init__(self, *, source: dict[str, str], target: dict[str, str]) -> None:
        self.admins = {"west": MemoryTopicAdmin(), "east": MemoryTopicAdmin()}
        self.admins["west"].put("orders", 2, configs=source)
        self.admins["east"].put("w.orders", 2, configs=target)
        self.positions, self.copies = MemoryPositionReader(), MemoryLogReader()
        self.logs = MemoryLogReader()
        self.published: dict[Route, RouteSettings] = {}
        self.pauses: list[float] = []

    def preparation(self, **route: Any) -> Preparation:
        return Preparation(
            settings=settings(**route),
            admins=self.admins.__getitem__,
            positions=lambda cluster: self.positions,
            logs={"west": self.logs, "east": self.copies}.__getitem__,
            published=self.published.get,
            pause=self.pauses.append,
        )


def prepared(
    wanted: RequestedAudit = WANTED,
    *,
    source: dict[str, str] | None = None,
    target: dict[str, str] | None = None,
    **route: Any,
) -> AuditRequest:
    clusters = Clusters(source=source or {}, target=target or {})
    return clusters.preparation(**route).requested(KEY, INTENT, wanted)


def test_ranges_names_and_rate() -> None:
    request = prepared()
    assert (request.source_topic_id, request.target_topic_id) == ("id-1", "id-1")
    assert (request.route, request.topic, request.target_topic) == (
        "west.east",
        "orders",
        "w.orders",
    )
    assert request.partitions == (PartitionRange(0, 7, 2), PartitionRange(1, 9, 4))
    assert request.options.rate_bytes_per_s == 70_000
    slow = RequestedAudit("r1", 5, WANTED.ranges, bytes_per_s=10_000)
    assert prepared(slow).options.rate_bytes_per_s == 10_000


def test_what_an_open_transaction_holds_is_not_compared() -> None:
    clusters = Clusters(source={}, target={})
    clusters.logs.hold("orders", 0, 0, 9)
    clusters.logs.logs["orders", 0].open_from = 7
    (note,) = clusters.preparation().requested(KEY, INTENT, WANTED).notes
    assert note.startswith("partition 0: 2 offsets behind 7 are held by an open transaction")


def test_settings_of_the_route_and_of_both_topics() -> None:
    options = prepared(
        source={"cleanup.policy": "compact,delete"}, delivery="exactly_once", start="latest"
    ).options
    assert (options.delivery, options.start) == (Delivery.EXACTLY_ONCE, "latest")
    assert (options.source_compacted, options.target_compacted) == (True, False)
    assert options.timestamps
    stamped = prepared(target={"message.timestamp.type": "LogAppendTime"})
    assert not stamped.options.timestamps
    assert stamped.not_comparable == ""


def test_a_route_counts_as_the_leader_has_published_it() -> None:
    clusters = Clusters(source={}, target={})
    prepare = clusters.preparation(delivery="at_least_once", start="earliest")
    assert prepare.requested(KEY, INTENT, WANTED).options.delivery is Delivery.AT_LEAST_ONCE
    clusters.published[KEY.route] = RouteSettings(Delivery.EXACTLY_ONCE, "latest")
    options = prepare.requested(KEY, INTENT, WANTED).options
    assert (options.delivery, options.start) == (Delivery.EXACTLY_ONCE, "latest")


def test_a_copy_is_compared_when_it_can_be_read_up_to_the_position() -> None:
    clusters = Clusters(source={}, target={})
    written = Provenance("W", "s", "t", "w", 0, 1, target_end=9, markers=1)
    ledger = clusters.positions.groups[position_group(fleet="test", route=KEY.route)]
    ledger.positions["w.orders", 1] = Position(9, metadata=written.encode())
    clusters.copies.hold("w.orders", 1, 0, 9)
    log = clusters.copies.logs["w.orders", 1]
    log.open_from = 4
    with pytest.raises(ClusterUnavailable, match=r"w\.orders/1 cannot be read up to the position"):
        clusters.preparation().requested(KEY, INTENT, WANTED)
    assert clusters.pauses == [PAUSE_S] * ATTEMPTS
    log.end, log.open_from = 10, None
    assert clusters.preparation().requested(KEY, INTENT, WANTED).partitions


def test_offsets_are_compared_as_the_positions_claim_them() -> None:
    clusters = Clusters(source={}, target={})
    written = Provenance("W", "s", "t", "w", 0, 1, same=SameOffsets(3, 1))
    ledger = clusters.positions.groups[position_group(fleet="test", route=KEY.route)]
    ledger.positions["w.orders", 1] = Position(9, metadata=written.encode())
    plain, claimed = clusters.preparation().requested(KEY, INTENT, WANTED).partitions
    assert (plain.claim, claimed.claim) == (UNCLAIMED, Claim(3, 1, 9))


def test_what_cannot_be_compared_has_its_reason() -> None:
    handled = prepared(handlers=[{"topics": "orders", "handler": "a.b:c"}])
    assert "handler" in handled.not_comparable
    ambiguous = prepared(
        target={"message.timestamp.type": "LogAppendTime", "cleanup.policy": "compact"}
    )
    assert "stamps records itself" in ambiguous.not_comparable


def test_a_cluster_that_does_not_have_its_topic() -> None:
    clusters = Clusters(source={}, target={})
    clusters.admins["east"].remove("w.orders")
    prepare = clusters.preparation()
    with pytest.raises(PermanentError, match="there is no such topic"):
        prepare.requested(KEY, INTENT, WANTED)


def test_one_client_of_each_cluster_describes_all_topics_in_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(preparation, "BATCH", 2)
    clusters, opened = Clusters(source={}, target={}), list[str]()
    batches: list[Sequence[str]] = []
    for admin in clusters.admins.values():
        admin.put("clicks", 1)
        admin.put("views", 1, configs={"cleanup.policy": "compact"})
    west = clusters.admins["west"]
    find = west.find
    west.find = lambda topics: batches.append(topics) or find(topics)  # type: ignore

    class Opened(dict[str, MemoryTopicAdmin]):
        def __getitem__(self, cluster: str) -> MemoryTopicAdmin:
            opened.append(cluster)
            return super().__getitem__(cluster)

    clusters.admins = Opened(clusters.admins)
    topics = {
        TopicKey(KEY.route, name): TopicIntent(1, 1, target_topic=name)
        for name in ("clicks", "views")
    }
    found = clusters.preparation().described({KEY: INTENT, **topics})
    assert sorted(opened) == ["east", "west"]
    assert batches == [["clicks", "orders"], ["views"]]
    assert set(found) == {
        (cluster, topic)
        for cluster, own in (("west", "orders"), ("east", "w.orders"))
        for topic in (own, "clicks", "views")
    }
    assert found["east", "views"] == Topic("id-3", {"cleanup.policy": "compact"})


def test_a_topic_that_is_not_described_does_not_hold_up_the_others() -> None:
    clusters = Clusters(source={}, target={})
    for admin in clusters.admins.values():
        admin.put("clicks", 1)
    clusters.admins["west"].troubled = {"clicks"}
    prepare = clusters.preparation()
    clicks = TopicKey(KEY.route, "clicks")
    found = prepare.described({KEY: INTENT, clicks: TopicIntent(1, 1, target_topic="clicks")})
    assert prepare.comparison(KEY, INTENT, (), described=found, bytes_per_s=1).topic == "orders"
    with pytest.raises(PermanentError, match="clicks at west: not now"):
        prepare.comparison(
            clicks, TopicIntent(1, 1, target_topic="clicks"), (), described=found, bytes_per_s=1
        )


def test_a_cluster_that_does_not_respond_is_an_error_of_its_topics() -> None:
    clusters = Clusters(source={}, target={})
    clusters.admins["west"].configs_failure = ClusterUnavailable("west does not respond")
    prepare = clusters.preparation()
    found = prepare.described({KEY: INTENT})
    assert isinstance(found["west", "orders"], ClusterUnavailable)
    assert isinstance(found["east", "w.orders"], Topic)


def test_a_comparison_goes_on_where_the_last_one_ended() -> None:
    audit = TopicAudit("s", "t", {0: VerifiedRange(0, 50, 5, 48)})
    assert next_first(audit, INTENT, 0) == (50, 48)
    assert next_first(audit, INTENT, 1) is None
    assert next_first(None, INTENT, 0) is None
    assert next_first(TopicAudit("s2", "t", audit.partitions), INTENT, 0) is None


def test_followed_routes() -> None:
    assert list(continuous_routes(settings(audit={"continuous": True}).routes)) == [KEY.route]
    assert continuous_routes(settings().routes) == {}
