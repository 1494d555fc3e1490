"""Requests about groups to coordinators of several versions, and what their responses say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from kafka.protocol import consumer, metadata

from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_common.kafka.client import Broker, ClusterClient, ClusterView
from ureplicator_common.kafka.groups import CommittedOffset, ListedGroup, Offsets, wire
from ureplicator_common.kafka.groups.requests import GROUPS_PER_REQUEST, KafkaConsumerGroups
from ureplicator_common.kafka.groups.share_wire import ALTER_SHARE_OFFSETS

NOT_COORDINATOR = 16
NOT_FOUND = 69
FETCH, FIND, BY_CLIENT = wire.OFFSET_FETCH, wire.FIND_COORDINATOR, (0, 0)
NEW, OLD = Broker(1, "new", 1), Broker(2, "old", 2)
COMMITTED: Offsets = {("t", 0): CommittedOffset(3), ("t", 1): CommittedOffset(4, "m")}


class Cluster(ClusterClient):
    """A broker that knows requests for many groups, and one that does not.

    `groups` by their coordinators; `moved`: these respond that they are not; `asked`: kinds of requests.
    """

    def __init__(self, groups: Mapping[Broker, Sequence[str]]) -> None:
        super().__init__("nowhere:1")
        self.groups = {broker: list(some) for broker, some in groups.items()}
        self.offsets: dict[str, Offsets] = {}
        self.moved: set[str] = set()
        self.gone: set[str] = set()
        self.lost: set[Broker] = set()
        self.unlisted: set[str] = set()
        self.asked: Counter[tuple[int, int]] = Counter()
        self.old = {OLD}

    def view(self, topics: Sequence[str]) -> ClusterView:
        return ClusterView("c", {broker.node_id: broker for broker in self.groups}, {}, {})

    def coordinators(self, keys: Sequence[str], kind: int) -> tuple[dict[Broker, list[str]], str]:
        self.asked[BY_CLIENT] += 1
        found = {
            broker: [key for key in keys if key in some] for broker, some in self.groups.items()
        }
        return {broker: some for broker, some in found.items() if some}, "no coordinator"

    def call_all(
        self, broker: Broker, requests: Sequence[Any], response: Any, *, channels: int = 1
    ) -> list[Any]:
        if broker in self.lost:
            raise ClusterUnavailable(f"{broker} did not respond")
        return [self._respond(broker, request, response) for request in requests]

    def _respond(self, broker: Broker, request: Any, response: Any) -> Any:
        if isinstance(request, metadata.ApiVersionsRequest):
            newest = (
                {wire.OFFSET_FETCH: 8, wire.FIND_COORDINATOR: 4, ALTER_SHARE_OFFSETS: 0}
                if broker not in self.old
                else {}
            )
            rows: Any = metadata.ApiVersionsResponse
            keys = [
                rows.ApiVersion(api_key=key, min_version=0, max_version=version)
                for key, version in newest.items()
            ]
            return rows(version=0, error_code=0, api_keys=keys)
        self.asked[request.api_key, request.version] += 1
        if request.api_key == wire.LIST_GROUPS:
            listed = [group for group in self.groups[broker] if group not in self.unlisted]
            return 0, [ListedGroup(group, "consumer", "Empty") for group in listed]
        if request.api_key == wire.FIND_COORDINATOR:
            return {group: (0, of) for of, some in self.groups.items() for group in some}
        assert request.api_key == wire.OFFSET_FETCH
        raw = _fetched(_asked_for(request), request.version, self)
        return response.decode(raw, version=request.version, header=True)


def _asked_for(request: Any) -> list[str]:
    request.with_header(correlation_id=1, client_id="c")
    raw = bytes(request.encode(framed=True, header=True))
    found: Any = consumer.OffsetFetchRequest.decode(raw[4:], version=request.version, header=True)
    if request.version < wire.MANY_GROUPS:
        return [found.group_id]
    return [group.group_id for group in found.groups]


def _topics(rows: Any, offsets: Offsets) -> list[Any]:
    (kind,) = (name for name in dir(rows) if name.startswith("OffsetFetchResponsePartition"))
    partitions = [
        getattr(rows, kind)(
            partition_index=number,
            committed_offset=committed.offset,
            committed_leader_epoch=-1,
            metadata=committed.metadata,
            error_code=0,
        )
        for (_, number), committed in offsets.items()
    ]
    return [rows(name="t", partitions=partitions)]


def _fetched(asked: Sequence[str], version: int, cluster: Cluster) -> bytes:
    kind: Any = consumer.OffsetFetchResponse
    found = {group: cluster.offsets.get(group, COMMITTED) for group in asked}
    codes = {group: NOT_COORDINATOR if group in cluster.moved else 0 for group in asked}
    codes |= {group: NOT_FOUND for group in asked if group in cluster.gone}
    if version < wire.MANY_GROUPS:
        (group,) = asked
        topics = _topics(kind.OffsetFetchResponseTopic, found[group])
        response = kind(version=version, throttle_time_ms=0, topics=topics, error_code=codes[group])
    else:
        each = kind.OffsetFetchResponseGroup
        rows = each.OffsetFetchResponseTopics
        groups = [
            each(group_id=group, topics=_topics(rows, offsets), error_code=codes[group])
            for group, offsets in found.items()
        ]
        response = kind(version=version, throttle_time_ms=0, groups=groups)
    response.with_header(correlation_id=1)
    return bytes(response.encode(header=True))


def names(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


@pytest.fixture
def cluster() -> Cluster:
    return Cluster({NEW: names("n", 2 * GROUPS_PER_REQUEST + 50), OLD: names("o", 30)})


@pytest.fixture
def groups(cluster: Cluster) -> KafkaConsumerGroups:
    found = KafkaConsumerGroups(cluster)
    found.listed()
    return found


def every(cluster: Cluster) -> list[str]:
    return [group for some in cluster.groups.values() for group in some]


def test_a_coordinator_is_asked_for_as_many_groups_as_it_takes(
    cluster: Cluster, groups: KafkaConsumerGroups
) -> None:
    found = groups.offsets(every(cluster))
    assert found == dict.fromkeys(every(cluster), COMMITTED)
    assert cluster.asked[FETCH, 8] == 3
    assert cluster.asked[FETCH, 7] == 30


def test_offsets_that_are_as_before_are_the_same_object(
    cluster: Cluster, groups: KafkaConsumerGroups
) -> None:
    before = groups.offsets(every(cluster))
    cluster.offsets = {group: {("t", 0): CommittedOffset(9)} for group in ("n7", "o7")}
    after = groups.offsets(every(cluster))
    other = {group for group in after if after[group] is not before[group]}
    assert other == {"n7", "o7"}
    assert after["n7"] == after["o7"] == {("t", 0): CommittedOffset(9)}


@pytest.mark.parametrize("group", ["n7", "o7"])
def test_a_group_that_has_moved_fails_alone_and_is_found_again(
    cluster: Cluster, groups: KafkaConsumerGroups, group: str
) -> None:
    cluster.moved = {group}
    for _ in range(2):
        found = groups.offsets(every(cluster))
        failed = {id for id, outcome in found.items() if isinstance(outcome, ClusterUnavailable)}
        assert failed == {group}
    cluster.moved.clear()
    assert cluster.asked[FIND, 4] == 1
    assert groups.offsets(every(cluster))[group] == COMMITTED


def test_a_coordinator_that_is_lost_fails_its_groups_only(
    cluster: Cluster, groups: KafkaConsumerGroups
) -> None:
    cluster.lost = {NEW}
    found = groups.offsets(every(cluster))
    failed = {id for id, outcome in found.items() if isinstance(outcome, ClusterUnavailable)}
    assert failed == set(cluster.groups[NEW])


def test_groups_that_no_broker_lists_are_found_many_at_once(cluster: Cluster) -> None:
    cluster.unlisted = {"n1", "n2", "o1"}
    groups = KafkaConsumerGroups(cluster)
    groups.listed()
    assert groups.offsets(["n1", "o1", "n2"]) == dict.fromkeys(("n1", "o1", "n2"), COMMITTED)
    assert (cluster.asked[FIND, 4], cluster.asked[BY_CLIENT]) == (1, 0)


def test_groups_are_found_one_by_one_where_no_broker_knows_better() -> None:
    cluster = Cluster({OLD: ["o1"]})
    groups = KafkaConsumerGroups(cluster)
    groups.listed()
    cluster.unlisted = {"o1"}
    groups.listed()
    assert groups.offsets(["o1"]) == {"o1": COMMITTED}
    assert cluster.asked[BY_CLIENT] == 1
    nobody = groups.offsets(["nobody"])["nobody"]
    assert isinstance(nobody, ClusterUnavailable)


def test_a_broker_that_was_replaced_by_an_older_one_is_asked_as_that(
    cluster: Cluster, groups: KafkaConsumerGroups
) -> None:
    cluster.old.add(NEW)
    groups.listed()
    groups.offsets(["n1"])
    assert (cluster.asked[FETCH, 8], cluster.asked[FETCH, 7]) == (0, 1)


def test_a_cluster_has_share_groups_if_all_its_brokers_can_set_their_offsets(
    cluster: Cluster, groups: KafkaConsumerGroups
) -> None:
    assert not groups.listed().share
    cluster.old.clear()
    assert groups.listed().share


@pytest.mark.parametrize("group", ["n7", "o7"])
def test_a_group_that_its_coordinator_does_not_know_has_no_offsets(
    cluster: Cluster, groups: KafkaConsumerGroups, group: str
) -> None:
    cluster.gone = {group}
    cluster.offsets = {group: {}}
    assert groups.offsets(every(cluster))[group] == {}
