"""The fence `acl` at a cluster in memory: raised, lifted, and watched."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest

from ureplicator_common.cutovers import AclChange
from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_common.kafka.acls import (
    ALLOW,
    DENY,
    LITERAL,
    OPERATIONS,
    PREFIXED,
    AclRefused,
    NoAuthorizer,
    TopicAcl,
)
from ureplicator_controller.core.cutover.acl_fence import Unfenceable
from ureplicator_controller.engines.cutover.acl_fence import AclFence
from ureplicator_testkit.kafka.authorizer import Authorizer
from ureplicator_testkit.kafka.memory_acls import MemoryAclAdmin

FLEET, BOB = "User:fleet", "User:bob"
WRITE = TopicAcl("t", LITERAL, BOB, "*", "WRITE", ALLOW)
OWN = replace(WRITE, principal=FLEET)
DENIED = replace(WRITE, permission=DENY)
READ = replace(WRITE, operation="READ")
EVERYONE = replace(WRITE, principal="User:*", name="*")
NOBODY = replace(DENIED, principal="User:*")


@pytest.fixture
def cluster() -> MemoryAclAdmin:
    admin = MemoryAclAdmin()
    admin.acls = {WRITE, OWN}
    return admin


def opened(
    cluster: MemoryAclAdmin, *, way_back: bool = True, opens: bool | None = None
) -> AclFence:
    return AclFence(cluster, principal=FLEET, way_back=way_back, opens_topics=opens)


def test_a_fence_is_raised_and_lifted_twice_each(cluster: MemoryAclAdmin) -> None:
    before, fence = set(cluster.acls), opened(cluster)
    change = fence.change(["t"])
    assert change == AclChange(added=frozenset({DENIED}))
    for _ in range(2):
        fence.apply(change)
        assert cluster.acls == {*before, DENIED}
        assert fence.change(["t"]) == AclChange()
    for _ in range(2):
        fence.apply(change.reversed)
        assert cluster.acls == before


def test_without_a_way_back_nobody_may_write(cluster: MemoryAclAdmin) -> None:
    assert opened(cluster, way_back=False).change(["t"]).added == {NOBODY}


def test_a_super_user_goes_on_writing_by_itself(cluster: MemoryAclAdmin) -> None:
    """So everyone may be denied, also where everyone may write."""
    cluster.acls = {EVERYONE}
    with pytest.raises(Unfenceable):
        opened(cluster).change(["t"])
    cluster.super_users = [FLEET]
    fence = opened(cluster)
    fence.apply(fence.change(["t"]))
    assert cluster.acls == {EVERYONE, NOBODY}
    assert fence.closed(["t"]) == frozenset()


def test_another_topic_shows_that_a_login_is_none_but_a_super_user(cluster: MemoryAclAdmin) -> None:
    elsewhere = replace(READ, name="elsewhere", principal=FLEET)
    cluster.acls, cluster.opens = {elsewhere}, True
    assert len(opened(cluster).change(["t"]).added) == len(OPERATIONS)


def test_bare_topics_that_nobody_knows_to_be_open(cluster: MemoryAclAdmin) -> None:
    cluster.acls, cluster.opens = set(), True
    with pytest.raises(Unfenceable, match=r"t; u; v; 1 more: no right .* a right of its own"):
        opened(cluster).change(["t", "u", "v", "w"])
    assert opened(cluster, opens=False).change(["t"]).added == {OWN}
    assert len(opened(cluster, opens=True).change(["t"]).added) == len(OPERATIONS)


def test_topics_with_rights_need_not_show_whether_others_are_open(cluster: MemoryAclAdmin) -> None:
    cluster.opens = True
    cluster.acls = {replace(OWN, operation="ALL"), WRITE}
    assert opened(cluster).change(["t"]).added == {DENIED}


def test_bare_topics_of_brokers_that_open_none(cluster: MemoryAclAdmin) -> None:
    cluster.acls = set()
    assert opened(cluster).change(["t"]).added == {OWN}


@pytest.mark.parametrize("way_back", [True, False])
@pytest.mark.parametrize("rights", [(), (replace(EVERYONE, name="t", operation="ALL"),)])
def test_readers_may_read_at_every_moment(
    cluster: MemoryAclAdmin, rights: Collection[TopicAcl], way_back: bool
) -> None:
    """Brokers add and remove the rights of a request one by one, in any order."""
    cluster.acls = before = set(rights)
    fence = opened(cluster, way_back=way_back, opens=True)
    change = fence.change(["t"])
    for part in (change, change.reversed):
        fence.apply(part)
    assert cluster.acls == before == set(rights)
    acls = set(rights)
    for sign, acl in cluster.changes:
        (acls.add if sign == "+" else acls.discard)(acl)
        shown = Authorizer(acls, opens_topics=True).operations("User:anyone", "10.0.0.1", "t")
        assert {"READ", "DESCRIBE"} <= shown


def test_brokers_that_lag_are_named_with_what_they_lack(cluster: MemoryAclAdmin) -> None:
    fence = opened(cluster)
    change = AclChange(added=frozenset({DENIED}), removed=frozenset({WRITE}))
    assert fence.lagging(change) == f"broker 1: lacks 1: {DENIED}; still has 1: {WRITE}"
    fence.apply(change)
    assert fence.lagging(change) == ""
    cluster.behind = {"broker 2": {DENIED, WRITE}, "broker 3": ClusterUnavailable("silent")}
    assert fence.lagging(change) == f"broker 2: still has 1: {WRITE}; broker 3: silent"


def test_what_others_have_undone_is_named(cluster: MemoryAclAdmin) -> None:
    fence = opened(cluster)
    change = AclChange(added=frozenset({DENIED}), removed=frozenset({READ}))
    fence.apply(change)
    assert fence.missing(change) == AclChange()
    cluster.acls = {WRITE, OWN, READ}
    assert fence.missing(change) == change


def test_a_new_writer_is_found_while_the_fence_holds(cluster: MemoryAclAdmin) -> None:
    fence = opened(cluster)
    fence.apply(fence.change(["t"]))
    cluster.acls.add(TopicAcl("t", PREFIXED, "User:eve", "*", "ALL", ALLOW))
    assert fence.change(["t"]).added == {replace(DENIED, principal="User:eve")}


def test_a_fleet_with_another_principal_is_stopped_and_named(cluster: MemoryAclAdmin) -> None:
    cluster.login = BOB
    fence = opened(cluster)
    assert fence.closed(["t"]) == frozenset()
    fence.apply(AclChange(added=frozenset({DENIED})))
    assert fence.closed(["t"]) == {"t"}


def test_a_change_that_fails_in_part_is_an_error_of_its_kind(cluster: MemoryAclAdmin) -> None:
    change = AclChange(added=frozenset({DENIED, READ}))
    cluster.refused = {DENIED: AclRefused("no")}
    with pytest.raises(AclRefused, match=r"1 of 1 rights failed, as DENY WRITE .*: no"):
        opened(cluster).apply(change)
    cluster.failure = NoAuthorizer("none")
    with pytest.raises(NoAuthorizer):
        opened(cluster).change(["t"])
