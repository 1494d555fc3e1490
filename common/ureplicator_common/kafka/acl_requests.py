"""Access rights of a real cluster.

A cluster that does not show its rights is an error, and never a cluster without rights: the copies of all
rights would be removed. So requests are sent by our own client: librdkafka 2.16 shows an empty list for a
response with an error.

Brokers that keep their metadata in ZooKeeper change rights at the controller only; others pass the request
on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from enum import IntEnum
from functools import partial
from typing import Any
from uuid import UUID

from kafka.protocol.admin import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
)
from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from ureplicator_common.errors import OperatingError
from ureplicator_common.kafka import ClusterUnavailable, topic_id_text
from ureplicator_common.kafka.acls import (
    OPERATIONS,
    AclRefused,
    NoAuthorizer,
    TopicAcl,
    not_shown,
)
from ureplicator_common.kafka.client import Broker, ClusterClient, controller_rows
from ureplicator_common.kafka.errors import DENIED, ErrorCode, refusal
from ureplicator_common.portions import portions

VERSION = 1
"""The only version of these requests that every supported broker has, and the first with prefixes."""
PORTION = 1_000
CONFIGS_VERSION = 1
METADATA_VERSION = 8
"""The first with the operations that a login may perform."""
BROKER_RESOURCE = 4
OPEN = "allow.everyone.if.no.acl.found"
"""Setting of the authorizer. Brokers do not know its type, so they hide its value (KIP-226)."""
TOPIC, ANY = 2, 1
TEMPORARY = frozenset(
    {
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    }
)


class Pattern(IntEnum):
    """Kafka's numbers."""

    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    """Kafka's numbers."""

    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


class Permission(IntEnum):
    """Kafka's numbers."""

    DENY = 2
    ALLOW = 3


class KafkaAclAdmin:
    """`AclAdmin` of one cluster. Belongs to one thread."""

    def __init__(self, client: ClusterClient, *, name: str) -> None:
        """`name`: of the cluster, for errors."""
        self._client = client
        self._name = name

    def read(self) -> frozenset[TopicAcl]:
        return self._shown(self._client.call_any(_describe_request, DescribeAclsResponse))

    def _shown(self, reply: Any) -> frozenset[TopicAcl]:
        if reply.error_code:
            raise self._failure(reply, "DESCRIBE on the cluster")
        return frozenset(
            _acl(resource, row)
            for resource in reply.resources
            for row in resource.acls
            if row.operation in set(Operation)
        )

    def opens_topics(self) -> bool:
        resource = DescribeConfigsRequest.DescribeConfigsResource
        for broker in self._client.view(()).brokers.values():
            named = resource(
                resource_type=BROKER_RESOURCE,
                resource_name=str(broker.node_id),
                configuration_keys=[OPEN],
            )
            request = DescribeConfigsRequest(
                version=CONFIGS_VERSION, resources=[named], include_synonyms=False
            )
            try:
                (row,) = self._client.call(broker, request, DescribeConfigsResponse).results
            except ClusterUnavailable:
                continue
            shown = [setting.value for setting in row.configs if setting.name == OPEN]
            return bool(row.error_code) or shown not in ([], ["false"])
        raise ClusterUnavailable(f"{self._name}: no broker shows its settings")

    def own_operations(self, topics: Collection[str]) -> Mapping[str, frozenset[str]]:
        reply = self._client.call_any(partial(_metadata_request, topics), MetadataResponse)
        return {
            row.name: frozenset()
            if row.error_code
            else OPERATIONS.intersection(_operation_names(row.authorized_operations))
            for row in reply.topics
            if row.error_code in DENIED or not row.error_code
        }

    def brokers_without(
        self, *, added: Collection[TopicAcl], removed: Collection[TopicAcl]
    ) -> Mapping[str, str]:
        brokers = self._client.view(()).brokers.values()
        found = {
            f"broker {broker.node_id}": self._not_shown(broker, added, removed)
            for broker in sorted(brokers, key=self._client.has_failed)
        }
        return {name: reason for name, reason in found.items() if reason}

    def _not_shown(
        self, broker: Broker, added: Collection[TopicAcl], removed: Collection[TopicAcl]
    ) -> str:
        request = _describe_request(**_common([*added, *removed]))
        try:
            shown = self._shown(self._client.call(broker, request, DescribeAclsResponse))
        except OperatingError as error:
            return str(error)
        return not_shown(shown, added=added, removed=removed)

    def others(self, topics: Mapping[str, str]) -> frozenset[str]:
        there = self._client.view(sorted(topics)).topic_ids if topics else {}
        return frozenset(
            name
            for name, id in topics.items()
            if name not in there or topic_id_text(UUID(there[name])) != id
        )

    def add(self, acls: Collection[TopicAcl]) -> Mapping[TopicAcl, OperatingError]:
        return self._change(acls, _create_request, CreateAclsResponse, "results")

    def remove(self, acls: Collection[TopicAcl]) -> Mapping[TopicAcl, OperatingError]:
        return self._change(acls, _delete_request, DeleteAclsResponse, "filter_results")

    def close(self) -> None:
        self._client.close()

    def _change(
        self,
        acls: Collection[TopicAcl],
        request: Callable[[Sequence[TopicAcl]], Any],
        response: Any,
        field: str,
    ) -> dict[TopicAcl, OperatingError]:
        """Changes that failed. The rows of a response are in the order of the request."""
        failed: dict[TopicAcl, OperatingError] = {}
        for portion in portions(sorted(acls), PORTION):
            rows = controller_rows(self._client, partial(request, portion), response, field)
            for acl, row in zip(portion, rows, strict=True):
                for result in (row, *getattr(row, "matching_acls", ())):
                    if result.error_code:
                        failed[acl] = self._failure(result, "ALTER on the cluster")
        return failed

    def _failure(self, row: Any, right: str) -> OperatingError:
        reason = refusal(row.error_code, right, f"cluster {self._name}")
        text = f"{self._name}: {reason} {row.error_message or ''}".strip()
        if row.error_code == ErrorCode.SECURITY_DISABLED:
            return NoAuthorizer(text)
        return ClusterUnavailable(text) if row.error_code in TEMPORARY else AclRefused(text)


def _describe_request(operation: int = ANY, permission: int = ANY) -> DescribeAclsRequest:
    return DescribeAclsRequest(
        version=VERSION,
        resource_type_filter=TOPIC,
        resource_name_filter=None,
        pattern_type_filter=ANY,
        principal_filter=None,
        host_filter=None,
        operation=operation,
        permission_type=permission,
    )


def _common(acls: Collection[TopicAcl]) -> dict[str, int]:
    """What all of these rights have in common: a filter that brokers with many others respond faster to."""
    common: dict[str, set[int]] = {
        "operation": {Operation[acl.operation] for acl in acls},
        "permission": {Permission[acl.permission] for acl in acls},
    }
    return {name: values.pop() for name, values in common.items() if len(values) == 1}


def _metadata_request(topics: Collection[str]) -> MetadataRequest:
    row = MetadataRequest.MetadataRequestTopic
    return MetadataRequest(
        version=METADATA_VERSION,
        topics=[row(name=topic) for topic in sorted(topics)],
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=True,
    )


def _operation_names(numbers: Collection[int]) -> set[str]:
    return {operation.name for operation in Operation if operation in numbers}


def _create_request(acls: Sequence[TopicAcl]) -> CreateAclsRequest:
    creations = [
        CreateAclsRequest.AclCreation(
            resource_type=TOPIC,
            resource_name=acl.name,
            resource_pattern_type=Pattern[acl.pattern],
            principal=acl.principal,
            host=acl.host,
            operation=Operation[acl.operation],
            permission_type=Permission[acl.permission],
        )
        for acl in acls
    ]
    return CreateAclsRequest(version=VERSION, creations=creations)


def _delete_request(acls: Sequence[TopicAcl]) -> DeleteAclsRequest:
    filters = [
        DeleteAclsRequest.DeleteAclsFilter(
            resource_type_filter=TOPIC,
            resource_name_filter=acl.name,
            pattern_type_filter=Pattern[acl.pattern],
            principal_filter=acl.principal,
            host_filter=acl.host,
            operation=Operation[acl.operation],
            permission_type=Permission[acl.permission],
        )
        for acl in acls
    ]
    return DeleteAclsRequest(version=VERSION, filters=filters)


def _acl(resource: Any, row: Any) -> TopicAcl:
    return TopicAcl(
        name=resource.resource_name,
        pattern=Pattern(resource.pattern_type).name,
        principal=row.principal,
        host=row.host,
        operation=Operation(row.operation).name,
        permission=Permission(row.permission_type).name,
    )
