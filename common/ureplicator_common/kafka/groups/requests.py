"""Consumer groups of a real cluster: many groups in few round trips.

* *List.* Each broker lists the groups that it coordinates, with their kinds and states, also those of the
  newer group protocols (share, streams).
* *Offsets.* Version 7 of OffsetFetch is the highest that every supported broker has, and asks for one group.
  So `PORTION` requests are sent at once, and responses are read as they come. Most are byte for byte those of
  the round before: they are not decoded again.
* *Commit.* The same way. The coordinator refuses a commit without a member for a group that has members, so
  a consumer that joins between the check and the commit is not disturbed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from types import MappingProxyType
from typing import Any, NamedTuple

from kafka.protocol.admin import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from kafka.protocol.consumer import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)

from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_common.kafka.client import GROUP_COORDINATOR, Broker, ClusterClient
from ureplicator_common.kafka.cluster_view import CORRELATION_ID_BYTES
from ureplicator_common.kafka.errors import COORDINATOR_MOVED, error_name
from ureplicator_common.kafka.groups import (
    CommittedOffset,
    GroupList,
    ListedGroup,
    Offsets,
    TopicPartition,
)
from ureplicator_common.kafka.position_rows import in_requests
from ureplicator_common.portions import portions

LIST_VERSION = 4
DESCRIBE_VERSION = 5
OFFSET_FETCH_VERSION = 7
OFFSET_COMMIT_VERSION = 7
UNKNOWN_LEADER_EPOCH = -1
"""Written with each offset. An epoch of the source that is above the target's would make consumers refresh
their metadata again and again."""
PORTION = 200
"""Requests sent before the first response is read. They must fit into the buffers of a socket: a broker
reads no request while nobody takes its responses."""


class Job(NamedTuple):
    """One request for a group; `offsets` are those to commit."""

    group: str
    offsets: Offsets = MappingProxyType({})


Answer = tuple[Job, Any]
"""A job and what the decoder made of its response, or ClusterUnavailable."""


class KafkaConsumerGroups:
    """`ConsumerGroups` of one cluster. Belongs to one thread."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client
        self._listed_at: dict[str, Broker] = {}
        self._known: dict[str, tuple[bytes, Offsets]] = {}

    def listed(self) -> GroupList:
        groups: dict[str, ListedGroup] = {}
        failed: dict[str, str] = {}
        at: dict[str, Broker] = {}
        for broker in self._client.view(()).brokers.values():
            try:
                found = self._list(broker)
            except ClusterUnavailable as error:
                failed[str(broker)] = str(error)
                continue
            groups |= {each.id: each for each in found}
            at |= {each.id: broker for each in found}
        self._listed_at = at
        self._known = {group: known for group, known in self._known.items() if group in at}
        return GroupList(groups, failed)

    def offsets(self, groups: Sequence[str]) -> Mapping[str, Offsets | ClusterUnavailable]:
        found: dict[str, Offsets | ClusterUnavailable] = {}
        jobs = [Job(group) for group in groups]
        for job, reply in self._exchange(jobs, _fetch_request, self._decoder):
            found[job.group] = self._failure(job.group, reply) if isinstance(reply, int) else reply
        return found

    def states(self, groups: Sequence[str]) -> Mapping[str, str | ClusterUnavailable]:
        led, found = self._led(groups)
        states: dict[str, str | ClusterUnavailable] = dict(found)
        for broker, some in led.items():
            for portion in portions(some, PORTION):
                states |= self._describe(broker, portion)
        return {group: states.get(group, _no_response(group)) for group in groups}

    def commit(
        self, groups: Mapping[str, Offsets]
    ) -> Mapping[str, Mapping[TopicPartition, str] | ClusterUnavailable]:
        refused: dict[str, dict[TopicPartition, str]] = {group: {} for group in groups}
        failed: dict[str, ClusterUnavailable] = {}
        jobs = [job for group, offsets in groups.items() for job in _jobs(group, offsets)]
        for job, reply in self._exchange(jobs, _commit_request, lambda _: OffsetCommitResponse):
            outcome = self._refused(job, reply)
            if isinstance(outcome, ClusterUnavailable):
                failed[job.group] = outcome
            else:
                refused[job.group] |= outcome
        return refused | failed

    def close(self) -> None:
        self._client.close()

    def _list(self, broker: Broker) -> list[ListedGroup]:
        """Raises ClusterUnavailable, also while the broker loads groups: its list is incomplete then."""
        request = ListGroupsRequest(version=LIST_VERSION, states_filter=[])
        reply = self._client.call(broker, request, ListGroupsResponse)
        if reply.error_code:
            raise ClusterUnavailable(f"groups of {broker}: {error_name(reply.error_code)}")
        return [
            ListedGroup(row.group_id, row.protocol_type, row.group_state) for row in reply.groups
        ]

    def _describe(
        self, broker: Broker, groups: Sequence[str]
    ) -> dict[str, str | ClusterUnavailable]:
        request = DescribeGroupsRequest(
            version=DESCRIBE_VERSION, groups=list(groups), include_authorized_operations=False
        )
        try:
            reply = self._client.call(broker, request, DescribeGroupsResponse)
        except ClusterUnavailable as error:
            return dict.fromkeys(groups, error)
        return {
            row.group_id: self._failure(row.group_id, row.error_code)
            if row.error_code
            else row.group_state
            for row in reply.groups
        }

    def _decoder(self, jobs: Sequence[Job]) -> _OffsetsDecoder:
        return _OffsetsDecoder(jobs, self._known)

    def _refused(self, job: Job, reply: Any) -> dict[TopicPartition, str] | ClusterUnavailable:
        if isinstance(reply, ClusterUnavailable):
            return reply
        codes = {
            (topic.name, row.partition_index): row.error_code
            for topic in reply.topics
            for row in topic.partitions
            if row.error_code
        }
        moved = set(codes.values()) & COORDINATOR_MOVED
        if moved:
            return self._failure(job.group, min(moved))
        return {key: error_name(code) for key, code in codes.items()}

    def _failure(self, group: str, code: int) -> ClusterUnavailable:
        if code in COORDINATOR_MOVED:
            self._listed_at.pop(group, None)
            self._client.forget_coordinator(group, GROUP_COORDINATOR)
        return ClusterUnavailable(f"group {group}: {error_name(code)}")

    def _exchange(
        self,
        jobs: Sequence[Job],
        request: Callable[[Job], Any],
        decoder: Callable[[Sequence[Job]], Any],
    ) -> Iterator[Answer]:
        """A broker that fails is not asked for the rest of its groups."""
        led, missing = self._led(list(dict.fromkeys(job.group for job in jobs)))
        at = {group: broker for broker, groups in led.items() for group in groups}
        yield from ((job, missing[job.group]) for job in jobs if job.group in missing)
        for broker in led:
            failure: ClusterUnavailable | None = None
            for portion in portions([job for job in jobs if at.get(job.group) is broker], PORTION):
                if failure is None:
                    try:
                        replies = self._client.call_all(
                            broker, [request(job) for job in portion], decoder(portion)
                        )
                    except ClusterUnavailable as error:
                        failure = error
                if failure is None:
                    yield from zip(portion, replies, strict=True)
                else:
                    yield from ((job, failure) for job in portion)

    def _led(
        self, groups: Sequence[str]
    ) -> tuple[dict[Broker, list[str]], dict[str, ClusterUnavailable]]:
        """Groups by their coordinators, and those without one."""
        led: dict[Broker, list[str]] = {}
        missing: dict[str, ClusterUnavailable] = {}
        unlisted: list[str] = []
        for group in groups:
            broker = self._listed_at.get(group)
            if broker is None:
                unlisted.append(group)
            else:
                led.setdefault(broker, []).append(group)
        for portion in portions(unlisted, PORTION):
            found, reason = self._client.coordinators(portion, GROUP_COORDINATOR)
            for broker, some in found.items():
                led.setdefault(broker, []).extend(some)
            for group in set(portion).difference(*found.values()):
                missing[group] = ClusterUnavailable(f"group {group}: {reason}")
        return led, missing


class _OffsetsDecoder:
    """Decodes responses to the jobs in their order; those that are as before are not decoded again.

    A response that is an error becomes its code.
    """

    def __init__(self, jobs: Sequence[Job], known: dict[str, tuple[bytes, Offsets]]) -> None:
        self._jobs = iter(jobs)
        self._known = known

    def decode(self, raw: bytes, *, version: int, header: bool) -> Offsets | int:
        group = next(self._jobs).group
        digest = blake2b(raw[CORRELATION_ID_BYTES:], digest_size=16).digest()
        known = self._known.get(group)
        if known is not None and known[0] == digest:
            return known[1]
        reply = OffsetFetchResponse.decode(raw, version=version, header=header)
        code = reply.error_code or max(
            (row.error_code for topic in reply.topics for row in topic.partitions), default=0
        )
        if code:
            return int(code)
        offsets = _offsets(reply)
        self._known[group] = digest, offsets
        return offsets


def _offsets(reply: Any) -> Offsets:
    return {
        (topic.name, row.partition_index): CommittedOffset(row.committed_offset, row.metadata or "")
        for topic in reply.topics
        for row in topic.partitions
        if row.committed_offset >= 0
    }


def _fetch_request(job: Job) -> OffsetFetchRequest:
    """All topics. Offsets of open transactions are left out, those before them are returned."""
    return OffsetFetchRequest(
        version=OFFSET_FETCH_VERSION, group_id=job.group, topics=None, require_stable=False
    )


def _commit_request(job: Job) -> OffsetCommitRequest:
    rows = OffsetCommitRequest.OffsetCommitRequestTopic
    by_topic: dict[str, list[object]] = {}
    for (topic, number), committed in job.offsets.items():
        row = rows.OffsetCommitRequestPartition(
            partition_index=number,
            committed_offset=committed.offset,
            committed_leader_epoch=UNKNOWN_LEADER_EPOCH,
            committed_metadata=committed.metadata,
        )
        by_topic.setdefault(topic, []).append(row)
    return OffsetCommitRequest(
        version=OFFSET_COMMIT_VERSION,
        group_id=job.group,
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=[rows(name=topic, partitions=some) for topic, some in by_topic.items()],
    )


def _jobs(group: str, offsets: Offsets) -> Iterator[Job]:
    for some in in_requests(offsets):
        yield Job(group, some)


def _no_response(group: str) -> ClusterUnavailable:
    return ClusterUnavailable(f"group {group}: not in the response of its coordinator")
