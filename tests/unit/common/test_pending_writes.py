"""Read-your-writes on a tree cache."""

from ureplicator_common.coordination import Create, Delete, Node, Operation, Set, Stat
from ureplicator_common.coordination.pending_writes import PendingWrites
from ureplicator_common.model import SessionId


def node(*, version: int = 0, czxid: int = 10, mzxid: int = 10) -> Node:
    return Node(b"", Stat(version, czxid, mzxid, SessionId(0)))


def test_nothing_is_pending_at_first() -> None:
    assert PendingWrites().are_shown_by({})


def test_a_created_node_is_awaited() -> None:
    pending = PendingWrites()
    pending.add([Create("/a", b"")], {})
    assert not pending.are_shown_by({})
    assert pending.are_shown_by({"/a": node()})
    assert pending.are_shown_by({}), "no more pending"


def test_a_set_node_is_awaited_in_its_version_or_a_later_one() -> None:
    pending = PendingWrites()
    pending.add([Set("/a", b"", version=4)], {"/a": node(version=4)})
    assert not pending.are_shown_by({"/a": node(version=4)})
    assert pending.are_shown_by({"/a": node(version=6)})


def test_a_deleted_node_is_awaited_to_be_gone_or_another() -> None:
    shown = {"/a": node(czxid=10)}
    for later in ({}, {"/a": node(czxid=11)}):
        pending = PendingWrites()
        pending.add([Delete("/a")], shown)
        assert not pending.are_shown_by(shown)
        assert pending.are_shown_by(later)


def test_a_node_that_was_deleted_is_not_taken_for_its_successor() -> None:
    shown = {"/a": node(version=7, czxid=10)}
    together: list[list[Operation]] = [[Delete("/a"), Create("/a", b"")]]
    apart: list[list[Operation]] = [[Delete("/a")], [Create("/a", b"")]]
    for batches in (together, apart):
        pending = PendingWrites()
        for batch in batches:
            pending.add(batch, shown)
        assert not pending.are_shown_by(shown)
        assert not pending.are_shown_by({})
        assert pending.are_shown_by({"/a": node(czxid=11)})


def test_a_node_that_is_deleted_before_it_was_shown_is_not_awaited() -> None:
    pending = PendingWrites()
    pending.add([Create("/a", b"")], {})
    pending.add([Delete("/a")], {})
    assert pending.are_shown_by({})


def test_one_write_that_is_not_shown_is_enough() -> None:
    pending = PendingWrites()
    pending.add([Create("/a", b""), Create("/b", b"")], {})
    assert not pending.are_shown_by({"/a": node()})
    pending.clear()
    assert pending.are_shown_by({})


def test_what_was_read_is_awaited_in_that_state_or_a_later_one() -> None:
    pending = PendingWrites()
    pending.expect("/a", node(mzxid=20))
    assert not pending.are_shown_by({})
    assert not pending.are_shown_by({"/a": node(mzxid=19)})
    assert pending.are_shown_by({"/a": node(mzxid=21)})


def test_an_absent_node_is_awaited_to_be_absent() -> None:
    pending = PendingWrites()
    pending.expect("/a", None)
    assert not pending.are_shown_by({"/a": node()})
    assert pending.are_shown_by({})
