"""What stops a whole topic: the leader's word, and the topic blacklist."""

from __future__ import annotations

from ureplicator_common.coordination import Create, Delete
from ureplicator_common.model import TopicKey
from ureplicator_common.znodes import encode_blacklisted
from ureplicator_controller.core.state.external_view import external_view
from ureplicator_controller.core.state.mismatches import topic_mismatches
from ureplicator_testkit.control.fleet import ROUTE, ControlFleet, two_workers

KEY = TopicKey(ROUTE, "t")


def copying() -> ControlFleet:
    fleet = two_workers()
    fleet.topic("other", 2)
    fleet.settle()
    return fleet


def assert_let_go(fleet: ControlFleet, reason: str) -> None:
    assert set(fleet.owners("t").values()) == {None}
    assert fleet.entry("t").reason == reason
    assert fleet.entry("t").holders == {}
    assert None not in fleet.owners("other").values()
    assert not any(
        partition.key == KEY for process in fleet.processes for partition in process.copies
    )


def mismatches(fleet: ControlFleet) -> int:
    seen = fleet.snapshot()
    return len(topic_mismatches(seen, external_view(seen), KEY))


def test_a_stopped_topic_is_let_go_and_shown_until_it_is_resumed() -> None:
    fleet = copying()
    fleet.topic("t", 4, stopped="source topic was deleted")
    fleet.settle()
    assert_let_go(fleet, "stopped: source topic was deleted")
    assert mismatches(fleet) == 4
    fleet.topic("t", 4, stopped="")
    assert "resumed (4)" in fleet.cycle().reasons
    fleet.settle()
    assert None not in fleet.owners("t").values()
    assert mismatches(fleet) == 0


def test_a_blacklisted_topic_is_let_go_as_asked() -> None:
    fleet = copying()
    path = fleet.paths.blacklisted(KEY)
    fleet._make(path.rpartition("/")[0])
    fleet.store.apply(fleet._session, [Create(path, encode_blacklisted("r"))])
    fleet.settle()
    assert_let_go(fleet, "blacklisted")
    assert mismatches(fleet) == 0
    fleet.store.apply(fleet._session, [Delete(path, -1)])
    fleet.settle()
    assert None not in fleet.owners("t").values()
    assert fleet.entry("t").reason == "removed from the blacklist"


def test_a_word_taken_back_before_anybody_let_go_is_given_under_a_new_epoch() -> None:
    """Whoever still copies by the former word must not go on as if nothing had been."""
    fleet = copying()
    before = fleet.entry("t").owner_epoch
    fleet.topic("t", 4, stopped="source topic was deleted")
    fleet.cycle()
    fleet.topic("t", 4, stopped="")
    fleet.settle()
    assert None not in fleet.owners("t").values()
    assert fleet.entry("t").owner_epoch > before
