"""Access rights that a target should have, and the changes that lead there."""

from __future__ import annotations

import pytest

from ureplicator_common.kafka.acls import ALLOW, DENY, LITERAL, PREFIXED, TopicAcl
from ureplicator_controller.core.syncs import acls as rules
from ureplicator_controller.core.syncs.acls import (
    AclPlan,
    acl_plan,
    first_rights,
    wanted_acls,
)
from ureplicator_controller.core.syncs.topics import SyncedTopic

TOPICS = (SyncedTopic("app-1", "x.app-1"), SyncedTopic("app-2", "other"))
BOB, ALL_USERS = "User:bob", "User:*"


def acl(
    name: str = "app-1",
    pattern: str = LITERAL,
    *,
    operation: str = "READ",
    permission: str = ALLOW,
    principal: str = BOB,
) -> TopicAcl:
    return TopicAcl(name, pattern, principal, "*", operation, permission)


def wanted(*source: TopicAcl) -> set[tuple[str, ...]]:
    found = wanted_acls(source, TOPICS, prefix="x.")
    assert {rule.host for rule in found} <= {"*"}
    return {(rule.name, rule.pattern, rule.permission, rule.operation) for rule in found}


@pytest.mark.parametrize(
    ("permission", "operation", "principal", "expected"),
    [
        (ALLOW, "READ", BOB, ["READ"]),
        (ALLOW, "WRITE", BOB, []),
        (ALLOW, "ALL", BOB, ["READ"]),
        (ALLOW, "DESCRIBE", ALL_USERS, ["DESCRIBE"]),
        (DENY, "READ", ALL_USERS, ["READ"]),
        (DENY, "WRITE", BOB, ["WRITE"]),
        (DENY, "ALL", BOB, ["ALL"]),
        (DENY, "WRITE", ALL_USERS, []),
        (DENY, "DESCRIBE", ALL_USERS, []),
        (DENY, "ALL", ALL_USERS, ["DELETE", "READ"]),
    ],
)
def test_operations(permission: str, operation: str, principal: str, expected: list[str]) -> None:
    found = wanted(acl(operation=operation, permission=permission, principal=principal))
    assert found == {("x.app-1", LITERAL, permission, given) for given in expected}


@pytest.mark.parametrize(
    ("name", "pattern", "expected"),
    [
        ("app-1", LITERAL, {("x.app-1", LITERAL)}),
        ("app-2", LITERAL, {("other", LITERAL)}),
        ("app-3", LITERAL, set()),
        ("*", LITERAL, set()),
        ("app-", PREFIXED, {("x.app-", PREFIXED), ("other", LITERAL)}),
        ("app-2", PREFIXED, {("other", LITERAL)}),
        ("app-1", PREFIXED, {("x.app-1", PREFIXED)}),
        ("shop-", PREFIXED, set()),
    ],
)
def test_names(name: str, pattern: str, expected: set[tuple[str, str]]) -> None:
    assert {rule[:2] for rule in wanted(acl(name, pattern))} == expected


# --- Changes

A, B, C = acl("a"), acl("b"), acl("c")
NONE: frozenset[TopicAcl] = frozenset()


def only(*acls: TopicAcl) -> frozenset[TopicAcl]:
    return frozenset(acls)


def plan(
    *want: TopicAcl,
    target: set[TopicAcl] | None = None,
    added: set[TopicAcl] | None = None,
    synced: tuple[str, ...] = ("a", "b", "c"),
    held: tuple[str, ...] = (),
) -> AclPlan:
    return acl_plan(
        frozenset(want),
        target=frozenset(target or ()),
        added=frozenset(added or ()),
        synced=synced,
        held=held,
    )


def test_a_right_is_written_down_before_it_is_added() -> None:
    found = plan(A, B, target={B})
    assert (found.add, found.remove) == (only(A), NONE)
    assert (found.before, found.after) == (only(A), only(A))


def test_only_own_rights_are_removed() -> None:
    found = plan(target={A, B}, added={A})
    assert (found.add, found.remove) == (NONE, only(A))
    assert (found.before, found.after) == (only(A), NONE)


def test_nothing_to_do() -> None:
    assert plan(A, B, target={A, B, C}, added={A}).is_quiet


def test_an_own_right_that_operators_removed_is_added_again_or_forgotten() -> None:
    assert plan(A, added={A}).add == {A}
    gone = plan(added={A})
    assert (gone.remove, gone.after, gone.is_quiet) == (NONE, NONE, False)


def test_rights_on_stopped_topics_are_kept_and_remembered() -> None:
    found = plan(target={A}, added={A}, synced=("b",), held=("a",))
    assert found.is_quiet
    assert found.after == {A}


def test_rights_on_topics_that_are_not_copied_any_more_are_left_to_operators() -> None:
    found = plan(target={A}, added={A}, synced=("b",))
    assert (found.remove, found.after) == (NONE, NONE)


def test_prefixes_belong_to_the_topics_that_begin_with_them() -> None:
    prefixed = acl("a", PREFIXED)
    assert plan(target={prefixed}, added={prefixed}, synced=("a-1",)).remove == {prefixed}
    assert plan(target={prefixed}, added={prefixed}, held=("a-1",), synced=()).after == {prefixed}
    assert plan(target={prefixed}, added={prefixed}, synced=("b",)).remove == NONE


def test_the_number_of_own_rights_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "MAX_ACLS", 2)
    found = plan(A, B, C, added={A})
    assert (found.add, found.left, found.after) == (only(A, B), only(C), only(A, B))


@pytest.mark.parametrize(
    ("due", "there", "is_first"),
    [
        (acl("a-1"), None, True),
        (acl("a-1"), acl("a-1", principal="User:eve"), False),
        (acl("a-1"), acl("a-1", permission=DENY), False),
        (acl("a-1"), acl("a-2"), True),
        (acl("a-1"), acl("a-", PREFIXED), False),
        (acl("a-1"), acl("b-", PREFIXED), True),
        (acl("a-1"), acl("*"), False),
        (acl("a-", PREFIXED), acl("a-1"), True),
        (acl("a-", PREFIXED), acl("a-"), True),
        (acl("a-", PREFIXED), acl("a-1", PREFIXED), True),
        (acl("a-", PREFIXED), acl("a", PREFIXED), False),
        (acl("a-", PREFIXED), acl("*"), False),
    ],
)
def test_first_rights(due: TopicAcl, there: TopicAcl | None, is_first: bool) -> None:
    """Brokers look for rights on the topic, on its prefixes and on all topics."""
    present = frozenset({there} if there else ())
    assert first_rights(frozenset({due}), present) == ({due} if is_first else set())
