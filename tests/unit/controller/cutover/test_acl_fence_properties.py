"""Fences by random rights, judged by the model of the brokers' authorizer."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ureplicator_common.cutovers import AclChange
from ureplicator_common.kafka.acls import TopicAcl
from ureplicator_controller.core.cutover.acl_fence import Unfenceable, fence
from ureplicator_controller.core.cutover.topic_rights import (
    is_super_user,
    opens_bare_topics,
    readers,
    writers,
)
from ureplicator_testkit.kafka.authorizer import OPERATIONS, Authorizer

FLEET, ALL_USERS = "User:fleet", "User:*"
PRINCIPALS = (FLEET, "User:bob", "Group:team", "User:nobody-names")
HOSTS = ("10.0.0.1", "10.0.0.2", "10.0.0.3")
TOPICS = ("app-1", "app-2", "shop")
"""`shop` is never fenced."""
GIVEN = ("WRITE", "DESCRIBE")
"""What a right to write allows."""

RIGHTS = st.builds(
    TopicAcl,
    name=st.sampled_from((*TOPICS, "app-", "a", "*")),
    pattern=st.sampled_from(("LITERAL", "LITERAL", "PREFIXED")),
    principal=st.sampled_from((*PRINCIPALS[:3], ALL_USERS)),
    host=st.sampled_from((*HOSTS[:2], "*", "*")),
    operation=st.sampled_from(("WRITE", "WRITE", "ALL", *OPERATIONS)),
    permission=st.sampled_from(("ALLOW", "ALLOW", "DENY")),
)


@dataclass(frozen=True)
class Case:
    """Rights, the topics to fence, who goes on writing (""; nobody), whether bare topics are open."""

    acls: frozenset[TopicAcl]
    topics: tuple[str, ...]
    spared: str
    opens: bool

    def fence(self, acls: Collection[TopicAcl]) -> AclChange:
        return fence(acls, self.topics, spared=self.spared, opens_topics=self.opens)

    def decisions(self, acls: Collection[TopicAcl]) -> dict[tuple[str, str, str, str], bool]:
        authorizer = Authorizer(acls, opens_topics=self.opens)
        return {
            (principal, host, operation, topic): authorizer.allows(
                principal, host, operation, topic
            )
            for principal in PRINCIPALS
            for host in HOSTS
            for operation in OPERATIONS
            for topic in TOPICS
        }


CASES = st.builds(
    Case,
    acls=st.frozensets(RIGHTS, max_size=6),
    topics=st.sampled_from((("app-1",), ("app-1", "app-2"))),
    spared=st.sampled_from((FLEET, FLEET, "")),
    opens=st.booleans(),
)


def fenced(case: Case) -> tuple[AclChange, frozenset[TopicAcl]]:
    """The fence, and the rights after it."""
    try:
        change = case.fence(case.acls)
    except Unfenceable:
        assume(False)
        raise
    return change, case.acls - change.removed | change.added


@settings(max_examples=200)
@given(CASES)
def test_nobody_but_the_fleet_may_write_and_all_else_is_as_it_was(case: Case) -> None:
    _, after = fenced(case)
    old, new = case.decisions(case.acls), case.decisions(after)
    for key, allowed in new.items():
        principal, _, operation, topic = key
        if topic in case.topics and operation == "WRITE" and principal != case.spared:
            assert not allowed, key
        elif topic in case.topics and principal == case.spared and operation in GIVEN:
            assert allowed >= old[key], key
        else:
            assert allowed == old[key], key


@given(CASES)
def test_the_fleet_may_write_where_it_is_spared(case: Case) -> None:
    assume(case.spared)
    _, after = fenced(case)
    decisions = case.decisions(after)
    for topic in case.topics:
        assert any(decisions[FLEET, host, "WRITE", topic] for host in HOSTS)


@settings(max_examples=100)
@given(CASES)
def test_a_fence_is_lifted_without_a_trace_and_raised_twice(case: Case) -> None:
    change, after = fenced(case)
    back = change.reversed
    assert after - back.removed | back.added == case.acls
    assert case.fence(after) == AclChange()
    assert {acl.name for acl in change.added | change.removed} <= set(case.topics)
    assert {acl.pattern for acl in change.added | change.removed} <= {"LITERAL"}


@given(CASES)
def test_a_refusal_has_a_reason(case: Case) -> None:
    """Without the rights of everyone on more than a topic, and denials for the fleet, there is none."""
    wide = {acl for acl in case.acls if acl.pattern == "PREFIXED" or acl.name == "*"}
    reasons = {acl for acl in wide if acl.principal == ALL_USERS and acl.permission == "ALLOW"}
    reasons |= {acl for acl in case.acls if acl.permission == "DENY"}
    kept = Case(case.acls - reasons, case.topics, case.spared, case.opens)
    assert kept.fence(kept.acls) is not None


@given(CASES)
def test_writers_and_readers_are_those_that_may(case: Case) -> None:
    decisions = case.decisions(case.acls)
    for topic in TOPICS:
        for operation, found in (
            ("WRITE", writers(case.acls, topic, opens_topics=case.opens)),
            ("READ", readers(case.acls, topic, opens_topics=case.opens)),
        ):
            named = {acl.principal for acl in case.acls} - {ALL_USERS}
            may = {p for p in PRINCIPALS if any(decisions[p, h, operation, topic] for h in HOSTS)}
            assert found - {ALL_USERS} <= may & named
            assert found or not may
            assert (ALL_USERS in found) == (PRINCIPALS[-1] in may)
            assert may & named <= found or ALL_USERS in found


@given(CASES, st.booleans())
def test_what_a_login_may_do_tells_of_no_one_falsely(case: Case, is_super: bool) -> None:
    supers = [FLEET] if is_super else []
    authorizer = Authorizer(case.acls, opens_topics=case.opens, super_users=supers)
    shown = {topic: authorizer.operations(FLEET, HOSTS[0], topic) for topic in TOPICS}
    assert is_super_user(case.acls, shown, FLEET) in (is_super, None)
    assert opens_bare_topics(case.acls, shown, FLEET) in (case.opens, None)
