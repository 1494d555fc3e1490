"""Requests for access rights: brokers that refuse, and what an error means."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from kafka.protocol.admin import (
    CreateAclsResponse,
    DeleteAclsResponse,
    DescribeAclsResponse,
    DescribeConfigsResponse,
)
from kafka.protocol.metadata import MetadataResponse

from ureplicator_common.errors import OperatingError
from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_common.kafka.acl_requests import ANY, KafkaAclAdmin, Operation, Pattern, Permission
from ureplicator_common.kafka.acls import ALLOW, LITERAL, AclRefused, NoAuthorizer, TopicAcl
from ureplicator_common.kafka.client import Broker, ClusterClient, ClusterView
from ureplicator_common.kafka.errors import ErrorCode

A = TopicAcl("a", LITERAL, "User:bob", "*", "READ", ALLOW)
B = TopicAcl("b", LITERAL, "User:bob", "*", "READ", ALLOW)
FORBIDDEN = 31
"""CLUSTER_AUTHORIZATION_FAILED."""


class Cluster(ClusterClient):
    """Responds as the test says; `asked`: the brokers, in order."""

    def __init__(self, *responses: Any, brokers: int = 2) -> None:
        super().__init__("nowhere:1")
        self.responses = deque(responses)
        self.brokers = {n: Broker(n, "host", 9000 + n) for n in range(brokers)}
        self.asked: list[int] = []
        self.requests: list[Any] = []

    def view(self, topics: Sequence[str]) -> ClusterView:
        return ClusterView("c", self.brokers, {}, {})

    def call(self, broker: Broker, request: Any, response: Any) -> Any:
        self.asked.append(broker.node_id)
        self.requests.append(request)
        reply = self.responses.popleft()
        if isinstance(reply, OperatingError):
            raise reply
        return reply

    def call_any(self, request: Any, response: Any) -> Any:
        return self.responses.popleft()


def created(*codes: int) -> Any:
    row = CreateAclsResponse.AclCreationResult
    rows = [row(error_code=code, error_message=None) for code in codes]
    return CreateAclsResponse(version=1, results=rows)


def deleted(*codes: int, matching: Sequence[int] = ()) -> Any:
    row = DeleteAclsResponse.DeleteAclsFilterResult
    match = row.DeleteAclsMatchingAcl
    matches = [match(error_code=code, error_message="no") for code in matching]
    rows = [row(error_code=code, error_message=None, matching_acls=matches) for code in codes]
    return DeleteAclsResponse(version=1, filter_results=rows)


def test_a_broker_that_is_not_the_controller_is_passed_over() -> None:
    cluster = Cluster(created(ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_CONTROLLER), created(0, 0))
    assert KafkaAclAdmin(cluster, name="c").add([A, B]) == {}
    assert cluster.asked == [0, 1]


def test_without_a_controller_the_outcome_is_not_known() -> None:
    cluster = Cluster(created(ErrorCode.NOT_CONTROLLER), created(ErrorCode.NOT_CONTROLLER))
    failed = KafkaAclAdmin(cluster, name="c").add([A])
    assert isinstance(failed[A], ClusterUnavailable)
    with pytest.raises(ClusterUnavailable):
        KafkaAclAdmin(Cluster(brokers=0), name="c").add([A])


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (ErrorCode.SECURITY_DISABLED, NoAuthorizer),
        (ErrorCode.REQUEST_TIMED_OUT, ClusterUnavailable),
        (FORBIDDEN, AclRefused),
    ],
)
def test_a_cluster_that_does_not_show_its_rights_is_an_error(
    code: int, error: type[OperatingError]
) -> None:
    """Taken for a cluster without rights, all copies would be removed."""
    reply = DescribeAclsResponse(version=1, error_code=int(code), error_message="no", resources=[])
    with pytest.raises(error, match="c: "):
        KafkaAclAdmin(Cluster(reply), name="c").read()


def test_errors_belong_to_the_rights_in_order() -> None:
    failed = KafkaAclAdmin(Cluster(created(0, FORBIDDEN)), name="c").add([B, A])
    assert list(failed) == [B]
    assert isinstance(failed[B], AclRefused)


def test_a_right_that_was_found_and_not_removed_has_failed() -> None:
    admin = KafkaAclAdmin(Cluster(deleted(0, matching=[0, FORBIDDEN]), deleted(0)), name="c")
    assert isinstance(admin.remove([A])[A], AclRefused)
    assert admin.remove([A]) == {}


def described(*acls: TopicAcl, code: int = 0) -> Any:
    response: Any = DescribeAclsResponse
    resource = response.DescribeAclsResource
    rows = [
        resource(
            resource_type=2,
            resource_name=acl.name,
            pattern_type=Pattern[acl.pattern],
            acls=[
                resource.AclDescription(
                    principal=acl.principal,
                    host=acl.host,
                    operation=Operation[acl.operation],
                    permission_type=Permission[acl.permission],
                )
            ],
        )
        for acl in acls
    ]
    return response(version=1, error_code=code, error_message=None, resources=rows)


def test_every_broker_has_to_show_a_change() -> None:
    cluster = Cluster(
        described(A), described(B), ClusterUnavailable("silent"), described(code=54), brokers=4
    )
    lacking = KafkaAclAdmin(cluster, name="c").brokers_without(added=[A], removed=[B])
    assert cluster.asked == [0, 1, 2, 3]
    assert lacking == {
        "broker 1": f"lacks 1: {A}; still has 1: {B}",
        "broker 2": "silent",
        "broker 3": "c: SECURITY_DISABLED",
    }


def test_brokers_are_asked_for_no_more_than_the_changed_rights_have_in_common() -> None:
    cluster = Cluster(described(), described(), brokers=1)
    admin = KafkaAclAdmin(cluster, name="c")
    admin.brokers_without(added=[A, B], removed=[])
    admin.brokers_without(added=[A], removed=[replace(A, operation="WRITE")])
    asked = [(sent.operation, sent.permission_type) for sent in cluster.requests]
    assert asked == [(Operation.READ, Permission.ALLOW), (ANY, Permission.ALLOW)]


def test_operations_of_this_login() -> None:
    response: Any = MetadataResponse
    row = response.MetadataResponseTopic
    rows = [
        row(error_code=code, name=name, is_internal=False, partitions=[], authorized_operations=may)
        for code, name, may in ((0, "a", {3, 8, 99}), (29, "hidden", None), (3, "none", None))
    ]
    cluster = Cluster(response(version=8, topics=rows))
    found = KafkaAclAdmin(cluster, name="c").own_operations(["a", "hidden", "none"])
    assert found == {"a": {"READ", "DESCRIBE"}, "hidden": frozenset()}


@pytest.mark.parametrize(
    ("code", "values", "expected"),
    [
        (0, [], False),
        (0, ["false"], False),
        (0, ["true"], True),
        (0, [None], True),
        (FORBIDDEN, [], True),
    ],
)
def test_topics_may_be_open_unless_a_broker_shows_otherwise(
    code: int, values: list[str | None], expected: bool
) -> None:
    """A value that is hidden is None."""
    admin = KafkaAclAdmin(Cluster(settings(code, values)), name="c")
    assert admin.opens_topics() is expected


def test_settings_without_a_broker_that_shows_them() -> None:
    with pytest.raises(ClusterUnavailable, match="c: no broker"):
        KafkaAclAdmin(Cluster(brokers=0), name="c").opens_topics()


def settings(code: int, values: list[str | None]) -> Any:
    response: Any = DescribeConfigsResponse
    result = response.DescribeConfigsResult
    rows = [
        result.DescribeConfigsResourceResult(
            name="allow.everyone.if.no.acl.found",
            value=value,
            read_only=True,
            config_source=4,
            is_sensitive=value is None,
            synonyms=[],
        )
        for value in values
    ]
    found = result(
        error_code=code, error_message=None, resource_type=4, resource_name="0", configs=rows
    )
    return response(version=1, throttle_time_ms=0, results=[found])
