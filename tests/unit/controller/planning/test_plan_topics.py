"""Topics stopped by the leader or by the topic blacklist."""

from __future__ import annotations

from ureplicator_common.audits import OffsetRange, RequestedAudit, TopicAudit
from ureplicator_common.coordination import Create, Delete, with_ancestors
from ureplicator_common.model import TopicKey
from ureplicator_common.znodes.audits import encode_audit_request, encode_audit_state
from ureplicator_common.znodes.topics import encode_blacklisted
from ureplicator_controller.core.planning.plan import Plan, plan
from ureplicator_controller.core.planning.steps import Retire
from ureplicator_controller.core.state.external_view import external_view
from ureplicator_controller.core.state.mismatches import topic_mismatches
from ureplicator_testkit.control.fleet import ROUTE, ControlFleet, two_workers

KEY = TopicKey(ROUTE, "t")


def copying() -> ControlFleet:
    fleet = two_workers()
    fleet.topic("other", 2)
    fleet.settle()
    return fleet


def assert_released(fleet: ControlFleet, reason: str) -> None:
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


def test_stopped_topic_is_released_and_listed_until_it_resumes() -> None:
    fleet = copying()
    fleet.topic("t", 4, stopped="source topic was deleted")
    fleet.settle()
    assert_released(fleet, "stopped: source topic was deleted")
    assert mismatches(fleet) == 4
    fleet.topic("t", 4, stopped="")
    assert "resumed (4)" in fleet.cycle().reasons
    fleet.settle()
    assert None not in fleet.owners("t").values()
    assert mismatches(fleet) == 0


def test_blacklisted_topic_is_released_without_mismatch() -> None:
    fleet = copying()
    path = fleet.paths.blacklisted(KEY)
    fleet._make(path.rpartition("/")[0])
    fleet.store.apply(fleet._session, [Create(path, encode_blacklisted("r"))])
    fleet.settle()
    assert_released(fleet, "blacklisted")
    assert mismatches(fleet) == 0
    fleet.store.apply(fleet._session, [Delete(path, -1)])
    fleet.settle()
    assert None not in fleet.owners("t").values()
    assert fleet.entry("t").reason == "removed from the blacklist"


def test_stop_lifted_before_the_release_leads_to_a_new_owner_epoch() -> None:
    """A worker that still copies under the former owner epoch must not continue."""
    fleet = copying()
    before = fleet.entry("t").owner_epoch
    fleet.topic("t", 4, stopped="source topic was deleted")
    fleet.cycle()
    fleet.topic("t", 4, stopped="")
    fleet.settle()
    assert None not in fleet.owners("t").values()
    assert fleet.entry("t").owner_epoch > before


def test_audits_of_a_deleted_topic_go_with_it() -> None:
    fleet = two_workers(2)
    key = TopicKey(ROUTE, "t")
    paths = fleet.paths.audits
    session = fleet.store.open_session()
    wanted = RequestedAudit("r1", 5, {0: OffsetRange(0, 9)})
    for parent in (paths.states, paths.requests):
        for path in with_ancestors(f"{parent}/{ROUTE}"):
            if fleet.store.node(path) is None:
                fleet.store.apply(session, [Create(path, b"")])
    state = Create(paths.state(key), encode_audit_state(TopicAudit("s", "t")))
    request = Create(paths.request(key), encode_audit_request(wanted))
    fleet.store.apply(session, [state, request])
    fleet.delete("t")
    fleet.settle()
    left = [fleet.store.node(path) for path in (paths.state(key), paths.request(key))]
    assert left == [None, None]


def test_a_request_to_forget_positions_meets_the_retirement_of_its_topic() -> None:
    """The retirement was planned before: it removes nothing, and the next plan waits for the deletion."""
    fleet = copying()
    fleet.delete("t")
    seen, decided = fleet.observe(), Plan((), None, ())
    while not any(isinstance(step, Retire) for step in decided.steps):
        fleet.cycle()
        for process in fleet.running():
            process.catch_up()
        seen = fleet.observe()
        decided = plan(seen, fleet.now_s)
    (retire,) = (step for step in decided.steps if isinstance(step, Retire))
    fleet.topic("t", 4, forget_positions=True)
    assert not fleet._apply(retire, seen)
    assert fleet.snapshot().topics[KEY].value.forget_positions
    fleet.settle()
    assert KEY in fleet.snapshot().topics
