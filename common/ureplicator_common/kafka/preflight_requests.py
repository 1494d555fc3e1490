"""Reading of `ClusterFacts` from real brokers, within a deadline."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from kafka.protocol.admin import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
)
from kafka.protocol.consumer import HeartbeatRequest, HeartbeatResponse
from kafka.protocol.metadata import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
    MetadataResponse,
)
from kafka.protocol.producer import (
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_common.kafka.client import (
    GROUP_COORDINATOR,
    ONE_PART,
    TRANSACTION_COORDINATOR,
    Broker,
    ClusterClient,
    NoCoordinator,
    controller_rows,
    open_client,
)
from ureplicator_common.kafka.errors import COORDINATOR_MOVED, ErrorCode, error_name
from ureplicator_common.kafka.features import API_VERSIONS_VERSION
from ureplicator_common.kafka.preflight import (
    ClusterFacts,
    Operation,
    Right,
    Server,
    VisibleTopics,
)
from ureplicator_common.kafka.producer_states import UNUSED_PRODUCER_ID
from ureplicator_common.kafka.transactions.broker_settings import broker_settings
from ureplicator_common.kafka.transactions.fencing import retry_delays
from ureplicator_common.kafka.transactions.producer_memory import DEFAULTS_S, memory_of
from ureplicator_common.kafka.wire.metadata import METADATA_VERSION
from ureplicator_common.model import BROKER_DEFAULT_REPLICATION

T = TypeVar("T")

MAX_AT_ONCE = 16
MEMBER = "ureplicator-doctor"
CREATE_TOPICS_VERSION, INIT_PRODUCER_ID_VERSION, END_TXN_VERSION, HEARTBEAT_VERSION = 5, 2, 1, 3
DELETE_RECORDS_VERSION, WRITE_TXN_MARKERS_VERSION = 1, 1
MAX_MESSAGE = "message.max.bytes"
ELECTION_S = 15.0
NOT_READY = COORDINATOR_MOVED | {ErrorCode.NOT_CONTROLLER, ErrorCode.CONCURRENT_TRANSACTIONS}
"""Answers that say nothing about a right: ask again."""
_DENIED = "AUTHORIZATION_FAILED"


def read_cluster(
    name: str,
    properties: Mapping[str, str],
    *,
    topic: str,
    group: str,
    transactional_id: str,
    rights: Sequence[Right],
    timeout_s: float,
) -> ClusterFacts:
    """Facts of one cluster. `topic`, `group`, `transactional_id`: what the rights are asked for.

    Raises ConfigurationError. What does not respond is part of the facts.
    """
    addresses = [address.strip() for address in properties["bootstrap.servers"].split(",")]
    servers = _servers(name, properties, addresses, timeout_s)
    responding = [server.address for server in servers if not server.failure]
    facts = ClusterFacts(servers)
    if not responding:
        return facts
    found = {**properties, "bootstrap.servers": ",".join(responding)}
    asked: Mapping[Right, Callable[[ClusterClient], int]] = {
        Right.CREATE_TOPICS: partial(_create, topic),
        Right.PRODUCER_IDS: _producer_id,
        Right.TRANSACTIONS: partial(_transaction, transactional_id),
        Right.GROUP: partial(_member, group),
        Right.CONTROL_RECORDS: _control_record,
        Right.DELETE_RECORDS: partial(_delete_records, topic),
    }
    with closing(open_client(name, found, timeout_s=timeout_s)) as client:
        facts = _read(client, facts, {right: asked[right] for right in rights})
        others = _others(client, addresses)
    return replace(facts, advertised=_servers(name, properties, others, timeout_s))


def _servers(
    name: str, properties: Mapping[str, str], addresses: Sequence[str], timeout_s: float
) -> tuple[Server, ...]:
    """All at the same time: one that is silent delays no other."""
    with ThreadPoolExecutor(MAX_AT_ONCE) as pool:
        return tuple(
            pool.map(lambda address: _server(name, properties, address, timeout_s), addresses)
        )


def _server(name: str, properties: Mapping[str, str], address: str, timeout_s: float) -> Server:
    host, _, port = address.rpartition(":")
    alone = {**properties, "bootstrap.servers": address}
    with closing(open_client(name, alone, timeout_s=timeout_s / ONE_PART)) as client:
        request = ApiVersionsRequest(version=API_VERSIONS_VERSION)
        broker = Broker(-1, host.strip("[]"), int(port))
        try:
            reply = client.call(broker, request, ApiVersionsResponse)
        except ClusterUnavailable as error:
            return Server(address, str(error))
    rows = reply.api_keys
    return Server(address, "", {row.api_key: (row.min_version, row.max_version) for row in rows})


def _read(
    client: ClusterClient,
    facts: ClusterFacts,
    asked: Mapping[Right, Callable[[ClusterClient], int]],
) -> ClusterFacts:
    unread: dict[str, str] = {}

    def attempt(what: str, read: Callable[[ClusterClient], T]) -> T | None:
        try:
            return read(client)
        except ClusterUnavailable as error:
            unread[what] = str(error)
            return None

    metadata = attempt("topics", _metadata)
    rights = {right: attempt(right, partial(_refusal, ask)) for right, ask in asked.items()}
    settings = attempt("settings of brokers", _settings)
    return replace(
        facts,
        cluster_id=(metadata.cluster_id or "") if metadata else "",
        brokers=len(metadata.brokers) if metadata else None,
        topics=_visible(metadata) if metadata else None,
        rights={right: refusal for right, refusal in rights.items() if refusal is not None},
        max_message_bytes=_least(settings or (), MAX_MESSAGE),
        memory=memory_of(settings) if settings else None,
        unread=unread,
    )


def _refusal(ask: Callable[[ClusterClient], int], client: ClusterClient) -> str:
    """Name of the error that denies a right; "" if there is none. Raises ClusterUnavailable."""
    try:
        code = _settled(ask, client)
    except ClusterUnavailable as error:
        if _DENIED in str(error):
            return str(error)
        raise
    name = error_name(code)
    return name if _DENIED in name else ""


def _settled(ask: Callable[[ClusterClient], int], client: ClusterClient) -> int:
    """Error code of a question that is asked again while a coordinator or controller is being elected.

    The first question to a fresh cluster makes it create the topic of its coordinators. Raises
    ClusterUnavailable.
    """
    deadline_s = client.deadline_s(ELECTION_S)
    for delay_s in retry_delays():
        try:
            code = ask(client)
        except NoCoordinator as error:
            if _DENIED in str(error) or client.now_s() > deadline_s:
                raise
        else:
            if code not in NOT_READY:
                return code
            if client.now_s() > deadline_s:
                raise ClusterUnavailable(f"still {error_name(code)} after {ELECTION_S:g} s")
        client.pause(delay_s)
    raise AssertionError("the delays have no end")


def _metadata(client: ClusterClient) -> Any:
    return client.call_any(
        lambda: MetadataRequest(
            version=METADATA_VERSION,
            topics=None,
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=True,
        ),
        MetadataResponse,
    )


def _visible(metadata: Any) -> VisibleTopics:
    topics = [topic for topic in metadata.topics if not topic.is_internal and not topic.error_code]
    return VisibleTopics(
        len(topics),
        not_readable=_without(topics, Operation.READ),
        not_writable=_without(topics, Operation.WRITE),
    )


def _without(topics: Sequence[Any], operation: Operation) -> tuple[str, ...]:
    """Names of topics on which the login has no right to an operation."""
    return tuple(
        sorted(topic.name for topic in topics if operation not in topic.authorized_operations)
    )


def _others(client: ClusterClient, addresses: Sequence[str]) -> list[str]:
    """Brokers that the cluster names beside these addresses."""
    try:
        brokers = client.view(()).brokers.values()
    except ClusterUnavailable:
        return []
    return [str(broker) for broker in brokers if str(broker) not in addresses]


def _create(topic: str, client: ClusterClient) -> int:
    rows = controller_rows(
        client,
        lambda: CreateTopicsRequest(
            version=CREATE_TOPICS_VERSION,
            topics=[
                CreateTopicsRequest.CreatableTopic(
                    name=topic,
                    num_partitions=1,
                    replication_factor=BROKER_DEFAULT_REPLICATION,
                    assignments=[],
                    configs=[],
                )
            ],
            timeout_ms=5_000,
            validate_only=True,
        ),
        CreateTopicsResponse,
        "topics",
    )
    return int(rows[0].error_code)


def _producer_id(client: ClusterClient) -> int:
    reply = client.call_any(
        lambda: InitProducerIdRequest(
            version=INIT_PRODUCER_ID_VERSION, transactional_id=None, transaction_timeout_ms=60_000
        ),
        InitProducerIdResponse,
    )
    return int(reply.error_code)


def _transaction(transactional_id: str, client: ClusterClient) -> int:
    """Error code of EndTxn for a producer that does not exist, so no transaction is ended."""
    request = EndTxnRequest(
        version=END_TXN_VERSION,
        transactional_id=f"{transactional_id}-{uuid.uuid4().hex}",
        producer_id=UNUSED_PRODUCER_ID,
        producer_epoch=0,
        committed=False,
    )
    broker = client.coordinator(request.transactional_id, TRANSACTION_COORDINATOR)
    return int(client.call(broker, request, EndTxnResponse).error_code)


def _member(group: str, client: ClusterClient) -> int:
    request = HeartbeatRequest(
        version=HEARTBEAT_VERSION,
        group_id=group,
        generation_id=0,
        member_id=MEMBER,
        group_instance_id=None,
    )
    broker = client.coordinator(group, GROUP_COORDINATOR)
    code = int(client.call(broker, request, HeartbeatResponse).error_code)
    if code in COORDINATOR_MOVED:
        client.forget_coordinator(group, GROUP_COORDINATOR)
    return code


def _control_record(client: ClusterClient) -> int:
    """For a partition that does not exist: the right is looked at first."""
    marker = WriteTxnMarkersRequest.WritableTxnMarker
    topic = marker.WritableTxnMarkerTopic(
        name=f"{MEMBER}-{uuid.uuid4().hex}", partition_indexes=[0]
    )
    reply = client.call_any(
        lambda: WriteTxnMarkersRequest(
            version=WRITE_TXN_MARKERS_VERSION,
            markers=[
                marker(
                    producer_id=UNUSED_PRODUCER_ID,
                    producer_epoch=0,
                    transaction_result=False,
                    topics=[topic],
                    coordinator_epoch=0,
                )
            ],
        ),
        WriteTxnMarkersResponse,
    )
    return int(reply.markers[0].topics[0].partitions[0].error_code)


def _delete_records(topic: str, client: ClusterClient) -> int:
    """Those before offset 0: there are none, whether the topic exists or not."""
    row = DeleteRecordsRequest.DeleteRecordsTopic
    partition = row.DeleteRecordsPartition(partition_index=0, offset=0)
    reply = client.call_any(
        lambda: DeleteRecordsRequest(
            version=DELETE_RECORDS_VERSION,
            topics=[row(name=topic, partitions=[partition])],
            timeout_ms=5_000,
        ),
        DeleteRecordsResponse,
    )
    return int(reply.topics[0].partitions[0].error_code)


def _settings(client: ClusterClient) -> list[Mapping[str, str]]:
    """Settings of each broker."""
    names = (MAX_MESSAGE, *DEFAULTS_S)
    return [broker_settings(client, broker, names) for broker in client.view(()).brokers.values()]


def _least(settings: Sequence[Mapping[str, str]], name: str) -> int | None:
    """Least value of a setting, of the brokers that show it."""
    return min((int(of_broker[name]) for of_broker in settings if name in of_broker), default=None)
