"""Requests about groups and their responses, against the library's classes."""

from __future__ import annotations

from typing import Any

import pytest
from kafka.protocol import admin, consumer, metadata

from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_common.kafka.client import Broker
from ureplicator_common.kafka.groups import CommittedOffset, ListedGroup, wire
from ureplicator_common.kafka.groups.wire import FetchedGroup

# Their rows are attributes that the library makes when it is imported.
OffsetCommitRequest: Any = consumer.OffsetCommitRequest
OffsetCommitResponse: Any = consumer.OffsetCommitResponse
OffsetFetchRequest: Any = consumer.OffsetFetchRequest
OffsetFetchResponse: Any = consumer.OffsetFetchResponse
DescribeGroupsRequest: Any = admin.DescribeGroupsRequest
DescribeGroupsResponse: Any = admin.DescribeGroupsResponse
ListGroupsRequest: Any = admin.ListGroupsRequest
ListGroupsResponse: Any = admin.ListGroupsResponse
FindCoordinatorRequest: Any = metadata.FindCoordinatorRequest
FindCoordinatorResponse: Any = metadata.FindCoordinatorResponse
LONG = "b" * 300
COMMITTED = {
    ("t", 0): CommittedOffset(3, "mé"),
    ("u", 1): CommittedOffset(2**40),
    ("t", 2): CommittedOffset(1, "x" * 200),
}


def sent(request: Any) -> bytes:
    request.with_header(correlation_id=7, client_id="x")
    return bytes(request.encode(framed=True, header=True))


def received(response: Any) -> bytes:
    response.with_header(correlation_id=7)
    return bytes(response.encode(header=True))


def commit_of_the_library() -> Any:
    rows = OffsetCommitRequest.OffsetCommitRequestTopic

    def topic(name: str) -> Any:
        partitions = [
            rows.OffsetCommitRequestPartition(
                partition_index=number,
                committed_offset=committed.offset,
                committed_leader_epoch=-1,
                committed_metadata=committed.metadata,
            )
            for (of, number), committed in COMMITTED.items()
            if of == name
        ]
        return rows(name=name, partitions=partitions)

    return OffsetCommitRequest(
        version=7,
        group_id="g",
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=[topic("t"), topic("u")],
    )


_GROUP = OffsetFetchRequest.OffsetFetchRequestGroup
_REQUESTS = {
    "fetch many": (
        wire.fetch_offsets(["a", LONG], 8),
        OffsetFetchRequest(
            version=8,
            groups=[_GROUP(group_id=group, topics=None) for group in ("a", LONG)],
            require_stable=False,
        ),
    ),
    "fetch one": (
        wire.fetch_offsets(["a"], 7),
        OffsetFetchRequest(version=7, group_id="a", topics=None, require_stable=False),
    ),
    "commit": (wire.commit_offsets("g", COMMITTED), commit_of_the_library()),
    "list": (wire.list_groups(), ListGroupsRequest(version=4, states_filter=[])),
    "describe": (
        wire.describe_groups(["a", LONG]),
        DescribeGroupsRequest(version=5, groups=["a", LONG], include_authorized_operations=False),
    ),
    "find": (
        wire.find_coordinators(["a", LONG]),
        FindCoordinatorRequest(version=4, key_type=0, coordinator_keys=["a", LONG]),
    ),
}


@pytest.mark.parametrize("name", _REQUESTS)
def test_requests_are_those_of_the_library(name: str) -> None:
    ours, theirs = _REQUESTS[name]
    assert sent(ours) == sent(theirs)


def fetched_topics(found: Any, error: int = 0) -> list[Any]:
    """Rows of COMMITTED, and one without an offset; of a class of the library."""

    def partition(number: int, committed: CommittedOffset, error: int) -> Any:
        name = next(
            name for name in dir(found) if name.endswith("Partitions") or name.endswith("Partition")
        )
        return getattr(found, name)(
            partition_index=number,
            committed_offset=committed.offset,
            committed_leader_epoch=5,
            metadata=committed.metadata,
            error_code=error,
        )

    topics: dict[str, list[Any]] = {"t": [partition(9, CommittedOffset(-1), error)]}
    for (name, number), committed in COMMITTED.items():
        topics.setdefault(name, []).append(partition(number, committed, 0))
    return [found(name=name, partitions=partitions) for name, partitions in topics.items()]


def fetched(version: int) -> bytes:
    if version < wire.MANY_GROUPS:
        rows = OffsetFetchResponse.OffsetFetchResponseTopic
        return received(
            OffsetFetchResponse(
                version=version, throttle_time_ms=0, topics=fetched_topics(rows), error_code=0
            )
        )
    group = OffsetFetchResponse.OffsetFetchResponseGroup
    rows = group.OffsetFetchResponseTopics
    groups = [
        group(group_id="a", topics=fetched_topics(rows), error_code=0),
        group(group_id=LONG, topics=[], error_code=16),
        group(group_id="c", topics=fetched_topics(rows, error=30), error_code=0),
    ]
    return received(OffsetFetchResponse(version=version, throttle_time_ms=0, groups=groups))


def test_offsets_of_many_groups_and_their_errors() -> None:
    assert wire.OffsetsDecoder({}).decode(fetched(8), version=8, header=True) == [
        FetchedGroup("a", 0, COMMITTED),
        FetchedGroup(LONG, 16, {}),
        FetchedGroup("c", 30, COMMITTED),
    ]


def test_offsets_of_one_group() -> None:
    found = wire.OffsetsDecoder({}).decode(fetched(7), version=7, header=True)
    assert found == [FetchedGroup("", 0, COMMITTED)]


def test_groups_share_the_names_of_their_partitions() -> None:
    first, _, last = wire.OffsetsDecoder({}).decode(fetched(8), version=8, header=True)
    assert [a is b for a, b in zip(first.offsets, last.offsets, strict=True)] == [True] * 3


@pytest.mark.parametrize("version", [7, 8])
def test_a_response_that_is_cut_off_is_an_error(version: int) -> None:
    whole = fetched(version)
    for end in range(5, len(whole) - 1):
        with pytest.raises(ClusterUnavailable):
            wire.OffsetsDecoder({}).decode(whole[:end], version=version, header=True)


def test_partitions_that_were_refused() -> None:
    rows = OffsetCommitResponse.OffsetCommitResponseTopic
    row = rows.OffsetCommitResponsePartition
    topics = [
        rows(name="t", partitions=[row(partition_index=n, error_code=n) for n in (0, 3)]),
        rows(name="u", partitions=[row(partition_index=1, error_code=25)]),
    ]
    raw = received(OffsetCommitResponse(version=7, throttle_time_ms=0, topics=topics))
    found = wire.RefusedDecoder().decode(raw, version=7, header=True)
    assert found == {("t", 3): 3, ("u", 1): 25}
    with pytest.raises(ClusterUnavailable):
        wire.RefusedDecoder().decode(raw[:-1], version=7, header=True)


def test_the_list_of_groups() -> None:
    row = ListGroupsResponse.ListedGroup
    groups = [
        row(group_id="a", protocol_type="consumer", group_state="Stable"),
        row(group_id=LONG, protocol_type="", group_state="Empty"),
    ]
    raw = received(ListGroupsResponse(version=4, throttle_time_ms=0, error_code=14, groups=groups))
    assert wire.ListDecoder().decode(raw, version=4, header=True) == (
        14,
        [ListedGroup("a", "consumer", "Stable"), ListedGroup(LONG, "", "Empty")],
    )


def test_states_of_groups_with_and_without_members() -> None:
    row = DescribeGroupsResponse.DescribedGroup
    member = row.DescribedGroupMember(
        member_id="m",
        group_instance_id=None,
        client_id="c",
        client_host="h",
        member_metadata=b"x" * 200,
        member_assignment=b"",
    )
    groups = [
        row(
            error_code=error,
            group_id=group,
            group_state=state,
            protocol_type="consumer",
            protocol_data="range",
            members=members,
            authorized_operations=set(),
        )
        for group, state, members, error in (
            ("a", "Stable", [member, member], 0),
            ("b", "Empty", [], 0),
            ("c", "", [], 16),
        )
    ]
    raw = received(DescribeGroupsResponse(version=5, throttle_time_ms=0, groups=groups))
    found = wire.StatesDecoder().decode(raw, version=5, header=True)
    assert found == {"a": (0, "Stable"), "b": (0, "Empty"), "c": (16, "")}


def test_coordinators_of_many_groups() -> None:
    row = FindCoordinatorResponse.Coordinator
    coordinators = [
        row(key="a", node_id=1, host="h", port=9092, error_code=0, error_message=None),
        row(key="b", node_id=-1, host="", port=-1, error_code=15, error_message="none"),
    ]
    raw = received(
        FindCoordinatorResponse(version=4, throttle_time_ms=0, coordinators=coordinators)
    )
    found = wire.CoordinatorsDecoder().decode(raw, version=4, header=True)
    assert found == {"a": (0, Broker(1, "h", 9092)), "b": (15, Broker(-1, "", -1))}
