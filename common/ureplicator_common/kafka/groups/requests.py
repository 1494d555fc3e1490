"""Consumer groups of a real cluster: many groups in few round trips.

* *List.* Each broker lists the groups that it coordinates, with their kinds and states, also those of the
  newer group protocols (share, streams).
* *Offsets.* A coordinator gets one request for many groups (KIP-709). A group that it does not coordinate
  has an error of its own in the response. Brokers before Kafka 3.0 get a request for each group, many at
  once. Most responses are byte for byte those of the round before: they are not decoded again.
* *Commit.* A request is for one group. Many are sent at once, over several connections. The coordinator
  refuses a commit without a member for a group that has members, so a consumer that joins between the check
  and the commit is not disturbed.
* *Deletion* of offsets leaves the group itself to its coordinator, which removes one without offsets and
  members some minutes later (`offsets.retention.check.interval.ms`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any

from kafka.protocol.consumer import OffsetDeleteRequest, OffsetDeleteResponse

from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_common.kafka.client import Broker, ClusterClient
from ureplicator_common.kafka.errors import COORDINATOR_MOVED, ErrorCode, Rights, error_name
from ureplicator_common.kafka.groups import (
    SHARE,
    GroupList,
    ListedGroup,
    Offsets,
    TopicPartition,
    share_wire,
    wire,
)
from ureplicator_common.kafka.groups.coordinators import Coordinators
from ureplicator_common.kafka.groups.rights import (
    TO_COMMIT,
    TO_DELETE,
    TO_READ,
    error_reason,
)
from ureplicator_common.kafka.transactions.position_rows import in_requests
from ureplicator_common.kafka.wire.reader import CORRELATION_ID_BYTES
from ureplicator_common.portions import portions

PORTION = 400
"""Groups in requests that are sent before the first response is read. They must fit into the buffers of a
socket: a broker reads no request while nobody takes its responses."""
GROUPS_PER_REQUEST = 100
DESCRIBED = 500
COMMITS = 2_048
CHANNELS = 128
"""Connections to a coordinator for commits, and commits that are sent over them at once. A coordinator
responds when a commit is replicated, and waits some milliseconds for others to write with it
(`group.coordinator.append.linger.ms`): one connection would carry some 200 commits a second."""
ONE_GROUP = 7
"""The highest version of OffsetFetch that every supported broker has."""

NO_OFFSETS: Offsets = {}
"""Offsets of a group that its coordinator does not know: not all brokers respond to that without an
error."""
DEAD = "Dead"
"""State of such a group."""

Commit = tuple[str, Offsets]
"""A group, and offsets that fit into one request."""


class KafkaConsumerGroups:
    """`ConsumerGroups` of one cluster. Belongs to one thread."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client
        self._coordinators = Coordinators(client)
        self._fetched = _FetchedOffsets()
        self._share: frozenset[str] = frozenset()

    def listed(self) -> GroupList:
        """Brokers may have been upgraded since the last list: their versions are asked again."""
        groups: dict[str, ListedGroup] = {}
        failed: dict[str, str] = {}
        at: dict[str, Broker] = {}
        newest: list[Mapping[int, int]] = []
        self._coordinators.forget_versions()
        view = self._client.view(())
        for broker in view.brokers.values():
            try:
                found = self._list(broker)
                newest.append(self._coordinators.versions(broker))
            except ClusterUnavailable as error:
                failed[str(broker)] = str(error)
                continue
            groups |= {group.id: group for group in found}
            at |= {group.id: broker for group in found}
        self._coordinators.take_listed(at)
        self._fetched.keep(at)
        self._share = frozenset(id for id, group in groups.items() if group.kind == SHARE)
        can_share = all(share_wire.ALTER_SHARE_OFFSETS in versions for versions in newest)
        return GroupList(
            groups, failed, share=bool(newest) and can_share, cluster_id=view.cluster_id
        )

    def offsets(self, groups: Sequence[str]) -> Mapping[str, Offsets | ClusterUnavailable]:
        led, missing = self._coordinators.led(groups)
        found: dict[str, Offsets | ClusterUnavailable] = dict(missing)
        self._fetched.begin()
        for broker, some in led.items():
            found |= self._fetch(broker, [name for name in some if name not in self._share])
            for portion in portions([name for name in some if name in self._share], DESCRIBED):
                found |= self._fetch_share(broker, portion)
        return {group: found.get(group, _no_response(group)) for group in groups}

    def states(self, groups: Sequence[str]) -> Mapping[str, str | ClusterUnavailable]:
        led, found = self._coordinators.led(groups)
        states: dict[str, str | ClusterUnavailable] = dict(found)
        for broker, some in led.items():
            for portion in portions(some, DESCRIBED):
                states |= self._describe(broker, portion)
        return {group: states.get(group, _no_response(group)) for group in groups}

    def commit(
        self, groups: Mapping[str, Offsets], *, share: Collection[str] = ()
    ) -> Mapping[str, Mapping[TopicPartition, str] | ClusterUnavailable]:
        led, missing = self._coordinators.led(list(groups))
        refused: dict[str, dict[TopicPartition, str]] = {group: {} for group in groups}
        failed: dict[str, ClusterUnavailable] = dict(missing)
        for broker, some in led.items():
            commits = [
                (id, part) for id in some if id not in share for part in in_requests(groups[id])
            ]
            altered = {id: groups[id] for id in some if id in share}
            for group, outcome in self._alter(broker, altered):
                if isinstance(outcome, ClusterUnavailable):
                    failed[group] = outcome
                else:
                    refused[group] |= outcome
            for group, outcome in self._commit(broker, commits):
                if isinstance(outcome, ClusterUnavailable):
                    failed[group] = outcome
                else:
                    refused[group] |= outcome
        return refused | failed

    def delete_offsets(
        self, groups: Mapping[str, Collection[TopicPartition]]
    ) -> Mapping[str, Mapping[TopicPartition, str] | ClusterUnavailable]:
        led, missing = self._coordinators.led(list(groups))
        failed: dict[str, Mapping[TopicPartition, str] | ClusterUnavailable] = dict(missing)
        for broker, some in led.items():
            for portion in portions(some, PORTION):
                failed |= self._delete(broker, {id: groups[id] for id in portion})
        return failed

    def close(self) -> None:
        self._client.close()

    def _list(self, broker: Broker) -> list[ListedGroup]:
        """Raises ClusterUnavailable, also while the broker loads groups: its list is incomplete then."""
        code, groups = self._client.call(broker, wire.list_groups(), wire.ListDecoder())
        if code:
            raise ClusterUnavailable(f"groups of {broker}: {error_name(code)}")
        found: list[ListedGroup] = groups
        return found

    def _fetch(
        self, broker: Broker, groups: Sequence[str]
    ) -> dict[str, Offsets | ClusterUnavailable]:
        """A broker that fails is not asked for the rest of its groups."""
        found: dict[str, Offsets | ClusterUnavailable] = {}
        try:
            newest = self._coordinators.versions(broker).get(wire.OFFSET_FETCH, ONE_GROUP)
            version = wire.MANY_GROUPS if newest >= wire.MANY_GROUPS else ONE_GROUP
            for portion in portions(groups, PORTION):
                found |= self._fetch_portion(broker, portion, version)
        except ClusterUnavailable as error:
            self._coordinators.forget(groups)
            return dict.fromkeys(groups, error) | found
        return found

    def _fetch_portion(
        self, broker: Broker, groups: Sequence[str], version: int
    ) -> Iterator[tuple[str, Offsets | ClusterUnavailable]]:
        """Raises ClusterUnavailable."""
        size = GROUPS_PER_REQUEST if version >= wire.MANY_GROUPS else 1
        parts = list(portions(groups, size))
        requests = [wire.fetch_offsets(part, version) for part in parts]
        for reply in self._client.call_all(broker, requests, self._fetched.decoder(parts)):
            for group, offsets in reply.items():
                is_error = isinstance(offsets, int)
                yield group, self._failure(group, offsets) if is_error else offsets

    def _fetch_share(
        self, broker: Broker, groups: Sequence[str]
    ) -> dict[str, Offsets | ClusterUnavailable]:
        request = share_wire.describe_share_offsets(groups)
        try:
            reply = self._client.call(broker, request, share_wire.ShareOffsetsDecoder())
        except ClusterUnavailable as error:
            self._coordinators.forget(groups)
            return dict.fromkeys(groups, error)
        return {
            row.group: NO_OFFSETS
            if row.error == ErrorCode.GROUP_ID_NOT_FOUND
            else self._failure(row.group, row.error)
            if row.error
            else row.offsets
            for row in reply
        }

    def _describe(
        self, broker: Broker, groups: Sequence[str]
    ) -> dict[str, str | ClusterUnavailable]:
        try:
            reply = self._client.call(broker, wire.describe_groups(groups), wire.StatesDecoder())
        except ClusterUnavailable as error:
            self._coordinators.forget(groups)
            return dict.fromkeys(groups, error)
        return {
            group: DEAD
            if code == ErrorCode.GROUP_ID_NOT_FOUND
            else self._failure(group, code)
            if code
            else state
            for group, (code, state) in reply.items()
        }

    def _commit(
        self, broker: Broker, commits: Sequence[Commit]
    ) -> Iterator[tuple[str, dict[TopicPartition, str] | ClusterUnavailable]]:
        """A broker that fails gets no more commits."""
        failure: ClusterUnavailable | None = None
        for portion in portions(commits, COMMITS):
            replies: Sequence[Mapping[TopicPartition, int]] = ()
            if failure is None:
                try:
                    requests = [wire.commit_offsets(*commit) for commit in portion]
                    replies = self._client.call_all(
                        broker, requests, wire.RefusedDecoder(), channels=CHANNELS
                    )
                except ClusterUnavailable as error:
                    failure = error
            if failure is not None:
                self._coordinators.forget([group for group, _ in portion])
                yield from ((group, failure) for group, _ in portion)
            for (group, _), codes in zip(portion, replies, strict=False):
                yield group, self._refused(group, codes, TO_COMMIT)

    def _alter(
        self, broker: Broker, groups: Mapping[str, Offsets]
    ) -> Iterator[tuple[str, dict[TopicPartition, str] | ClusterUnavailable]]:
        """A group with members is refused as a whole. A broker that fails gets no more requests."""
        for portion in portions([*groups], COMMITS):
            requests = [share_wire.alter_share_offsets(id, groups[id]) for id in portion]
            decoder = share_wire.AlteredDecoder()
            try:
                replies = self._client.call_all(broker, requests, decoder, channels=CHANNELS)
            except ClusterUnavailable as error:
                self._coordinators.forget(list(groups))
                yield from ((id, error) for id in groups)
                return
            for id, altered in zip(portion, replies, strict=True):
                whole = dict.fromkeys(groups[id], altered.code) if altered.code else {}
                yield id, self._refused(id, whole or altered.refused, TO_COMMIT)

    def _delete(
        self, broker: Broker, groups: Mapping[str, Collection[TopicPartition]]
    ) -> Iterator[tuple[str, dict[TopicPartition, str] | ClusterUnavailable]]:
        requests = [_offset_delete(id, keys) for id, keys in groups.items()]
        try:
            replies = self._client.call_all(broker, requests, OffsetDeleteResponse)
        except ClusterUnavailable as error:
            self._coordinators.forget(list(groups))
            yield from ((id, error) for id in groups)
            return
        for (id, keys), reply in zip(groups.items(), replies, strict=True):
            yield id, self._refused(id, _not_deleted(keys, reply), TO_DELETE)

    def _refused(
        self, group: str, codes: Mapping[TopicPartition, int], rights: Rights
    ) -> dict[TopicPartition, str] | ClusterUnavailable:
        moved = COORDINATOR_MOVED.intersection(codes.values())
        if moved:
            return self._failure(group, min(moved))
        return {key: error_reason(code, rights) for key, code in codes.items()}

    def _failure(self, group: str, code: int) -> ClusterUnavailable:
        if code in COORDINATOR_MOVED:
            self._coordinators.forget([group])
        return ClusterUnavailable(f"group {group}: {error_reason(code, TO_READ)}")


class _FetchedOffsets:
    """Offsets as they were fetched last. Equal ones are the same object, and equal responses to the same
    groups are not decoded again."""

    def __init__(self) -> None:
        self._known: dict[str, Offsets] = {}
        self._keys: dict[TopicPartition, TopicPartition] = {}
        self._before: Mapping[tuple[str, ...], bytes] = {}
        self._now: dict[tuple[str, ...], bytes] = {}

    def begin(self) -> None:
        """A round of requests."""
        self._before, self._now, self._keys = self._now, {}, {}

    def keep(self, groups: Mapping[str, object]) -> None:
        """Forget all others."""
        self._known = {group: known for group, known in self._known.items() if group in groups}

    def decoder(self, parts: Sequence[Sequence[str]]) -> _PartsDecoder:
        """A decoder of responses to requests for these groups, in their order."""
        return _PartsDecoder(self, parts)

    def taken(self, part: Sequence[str], raw: bytes, version: int) -> dict[str, Offsets | int]:
        """Offsets of each group, or its error code."""
        asked = tuple(part)
        digest = blake2b(raw[CORRELATION_ID_BYTES:], digest_size=16).digest()
        if self._before.get(asked) == digest and all(group in self._known for group in asked):
            self._now[asked] = digest
            return {group: self._known[group] for group in asked}
        rows = wire.OffsetsDecoder(self._keys).decode(raw, version=version, header=True)
        found = {(row.group or asked[0]): self._kept(row.group or asked[0], row) for row in rows}
        if not any(isinstance(outcome, int) for outcome in found.values()):
            self._now[asked] = digest
        return found

    def _kept(self, group: str, row: wire.FetchedGroup) -> Offsets | int:
        if row.error == ErrorCode.GROUP_ID_NOT_FOUND:
            return NO_OFFSETS
        if row.error:
            return row.error
        known = self._known.get(group)
        if known is None or known != row.offsets:
            self._known[group] = known = row.offsets
        return known


class _PartsDecoder:
    """Decodes responses in the order of their requests, in place of the library's class."""

    def __init__(self, fetched: _FetchedOffsets, parts: Sequence[Sequence[str]]) -> None:
        self._fetched = fetched
        self._parts = iter(parts)

    def decode(self, raw: bytes, *, version: int, header: bool) -> Any:
        return self._fetched.taken(next(self._parts), raw, version)


def _offset_delete(group: str, keys: Collection[TopicPartition]) -> OffsetDeleteRequest:
    topic = OffsetDeleteRequest.OffsetDeleteRequestTopic
    partition = topic.OffsetDeleteRequestPartition
    numbers: dict[str, list[int]] = {}
    for name, number in sorted(keys):
        numbers.setdefault(name, []).append(number)
    topics = [
        topic(name=name, partitions=[partition(partition_index=index) for index in some])
        for name, some in numbers.items()
    ]
    return OffsetDeleteRequest(version=0, group_id=group, topics=topics)


def _not_deleted(keys: Collection[TopicPartition], reply: Any) -> dict[TopicPartition, int]:
    """Error codes of partitions. A group that does not exist has no offsets."""
    if reply.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        return {}
    if reply.error_code:
        return dict.fromkeys(keys, reply.error_code)
    return {
        (topic.name, row.partition_index): row.error_code
        for topic in reply.topics
        for row in topic.partitions
        if row.error_code
    }


def _no_response(group: str) -> ClusterUnavailable:
    return ClusterUnavailable(f"group {group}: not in the response of its coordinator")
