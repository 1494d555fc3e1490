"""Access rights of the fence `acl`, by example, and who may do what."""

from __future__ import annotations

import pytest

from ureplicator_common.cutovers import AclChange
from ureplicator_common.kafka.acls import ALLOW, DENY, LITERAL, OPERATIONS, PREFIXED, TopicAcl
from ureplicator_controller.core.cutover.acl_fence import Unfenceable, fence
from ureplicator_controller.core.cutover.topic_rights import (
    is_super_user,
    opens_bare_topics,
    readers,
    without,
    writers,
)

FLEET, BOB, EVERYONE = "User:fleet", "User:bob", "User:*"
OTHERS = OPERATIONS - {"WRITE"}


def acl(
    operation: str = "WRITE",
    principal: str = BOB,
    *,
    name: str = "t",
    pattern: str = LITERAL,
    permission: str = ALLOW,
    host: str = "*",
) -> TopicAcl:
    return TopicAcl(name, pattern, principal, host, operation, permission)


OWN = acl(principal=FLEET)
NOBODY = acl(principal=EVERYONE, permission=DENY)


def change(*acls: TopicAcl, spared: str = FLEET, opens: bool = False) -> AclChange:
    return fence(acls, ["t"], spared=spared, opens_topics=opens)


@pytest.mark.parametrize(
    "right",
    [
        acl(),
        acl("ALL"),
        acl(host="10.0.0.1"),
        acl(name="*"),
        acl("ALL", name="", pattern=PREFIXED),
    ],
    ids=str,
)
def test_a_writer_is_denied_by_its_name(right: TopicAcl) -> None:
    assert change(right, OWN) == AclChange(added=frozenset({acl(permission=DENY)}))


def test_who_may_not_write_already_is_left_alone() -> None:
    assert change(acl("READ"), acl(permission=DENY), acl("ALL"), OWN) == AclChange()


def test_the_fleet_gets_the_right_that_the_way_back_needs() -> None:
    assert change().added == {OWN}
    assert change(acl("READ", FLEET)).added == {OWN}
    assert change(acl("ALL", FLEET, name="*")) == AclChange()


def test_everyone_keeps_all_but_write() -> None:
    found = change(acl("ALL", EVERYONE, host="10.0.0.1"))
    assert found.removed == {acl("ALL", EVERYONE, host="10.0.0.1")}
    assert found.added == {
        acl(principal=FLEET, host="10.0.0.1"),
        *(acl(operation, EVERYONE, host="10.0.0.1") for operation in OTHERS),
    }
    assert change(acl(principal=EVERYONE)).added == {OWN, acl("DESCRIBE", EVERYONE)}


def test_a_right_that_is_there_already_is_not_of_the_fence() -> None:
    """It would go with the fence."""
    theirs = acl("READ", EVERYONE)
    found = change(acl("ALL", EVERYONE), theirs, acl(), acl(permission=DENY))
    assert found.added == {OWN, *(acl(name, EVERYONE) for name in OTHERS)} - {theirs}


def test_a_bare_topic_that_is_open_stays_so_but_for_writers() -> None:
    kept = {acl(operation, EVERYONE) for operation in OTHERS}
    assert change(opens=True) == AclChange(added=frozenset({OWN, *kept}))
    assert change(spared="", opens=True).added == {acl("ALL", EVERYONE), NOBODY}


def test_without_a_way_back_everyone_is_denied() -> None:
    rights = (acl(), acl("ALL", EVERYONE, name="*"), OWN)
    assert change(*rights, spared="") == AclChange(added=frozenset({NOBODY}))
    assert change(*rights, NOBODY, spared="") == AclChange()


@pytest.mark.parametrize("name", ["*", "t"])
def test_everyone_by_a_prefix_cannot_be_fenced_off_without_the_fleet(name: str) -> None:
    pattern = LITERAL if name == "*" else PREFIXED
    with pytest.raises(Unfenceable, match=r"WRITE for User:\* from \* on .*: to deny it"):
        change(acl(principal=EVERYONE, name=name, pattern=pattern), OWN)


def test_a_denial_for_the_fleet_is_named() -> None:
    with pytest.raises(Unfenceable, match=r"DENY ALL for User:\* from \* on prefixed t: the way"):
        change(OWN, acl("ALL", EVERYONE, name="t", pattern=PREFIXED, permission=DENY))


def test_a_refusal_names_the_first_rights() -> None:
    rights = [acl(principal=EVERYONE, name="t"[:n], pattern=PREFIXED) for n in (0, 1)]
    more = [acl(o, EVERYONE, name="*", host=h) for o in ("ALL", "WRITE") for h in ("*", "10.0.0.1")]
    with pytest.raises(Unfenceable, match="and 3 more"):
        change(*rights, *more)


def test_who_may_at_one_cluster_and_not_at_the_other() -> None:
    source = [acl("ALL"), acl("READ", "User:eve"), acl("WRITE", "User:gone", permission=DENY)]
    assert writers(source, "t", opens_topics=False) == {BOB}
    assert readers(source, "t", opens_topics=False) == {BOB, "User:eve"}
    assert writers([], "t", opens_topics=True) == {EVERYONE}
    target = [acl("READ", EVERYONE), acl("READ", "User:eve", permission=DENY)]
    lost = without({BOB, "User:eve"}, "READ", target, "t", opens_topics=False)
    assert lost == {"User:eve"}


@pytest.mark.parametrize(
    ("acls", "shown", "is_super", "opens"),
    [
        ([], {"t": OPERATIONS}, None, None),
        ([], {"t": frozenset()}, False, False),
        ([acl("READ")], {"t": OPERATIONS}, True, None),
        ([acl("READ", FLEET)], {"t": {"READ", "DESCRIBE"}}, False, None),
        ([acl("ALL", FLEET)], {"t": OPERATIONS}, None, None),
        ([acl("READ", FLEET)], {"t": {"READ"}, "bare": OPERATIONS}, False, True),
        ([acl("READ")], {"t": OPERATIONS, "bare": OPERATIONS}, True, None),
    ],
)
def test_what_a_login_may_do_tells(
    acls: list[TopicAcl],
    shown: dict[str, frozenset[str]],
    is_super: bool | None,
    opens: bool | None,
) -> None:
    assert is_super_user(acls, shown, FLEET) is is_super
    assert opens_bare_topics(acls, shown, FLEET) is opens
