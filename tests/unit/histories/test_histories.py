"""Eight histories in which records could be lost or duplicated, or written by a former owner.

Each runs from start to end. Where ownership is concerned, the plan, the worker's state machine, the
proof and the ownership of the copiers are the real code (`ureplicator_testkit.control.ownership_fleet`).

    1  an owner freezes before its first commit, another takes over, the first thaws
    2  an owner, a second one that never committed, a third one
    3  a worker restarts under its id while its former process is frozen
    4  a worker's main loop hangs while its ZooKeeper session lives
    5  a partition is idle for longer than the target keeps offsets
    6  a topic is deleted and recreated while the fleet is down
    7  a successor's leader node has version 0 while the former leader still writes
    8  a REST write is applied and its response is lost
"""

from collections.abc import Iterator
from contextlib import closing

import pytest

from ureplicator_common.coordination import Check, Conflict, Create
from ureplicator_testkit.control.fleet import ids_of, partition
from ureplicator_testkit.control.manual_controllers import PATHS, ControllerFleet
from ureplicator_testkit.control.ownership_fleet import OwnershipFleet, OwnershipWorker
from ureplicator_testkit.control.rest_fixture import RestFixture
from ureplicator_testkit.copier.line import Line, fill
from ureplicator_testkit.kafka.memory_kafka import MemoryKafka

P = partition("t")
DELAY_S = 120
HANDOVER_S = 30
HOUR_S = 3600.0
RETENTION_S = 7 * 24 * HOUR_S


@pytest.fixture
def fleet() -> Iterator[OwnershipFleet]:
    fleet = OwnershipFleet()
    yield fleet
    fleet.close()


def copying(fleet: OwnershipFleet, id: str) -> OwnershipWorker:
    """A worker that copies t/0, and has committed some of it."""
    worker = fleet.worker(id)
    fleet.topic("t")
    fleet.settle()
    assert fleet.owners("t") == {0: id}
    assert fleet.offset(P) > 0
    return worker


def run_leader_only(fleet: OwnershipFleet) -> None:
    """Some cycles of the leader, while no worker acts."""
    for _ in range(3):
        fleet.cycle()


def placed_after(fleet: OwnershipFleet, id: str, seconds: float) -> OwnershipWorker:
    """A worker that is given t/0 after it had no owner for so long; it has not read its assignment."""
    run_leader_only(fleet)
    fleet.wait(seconds)
    worker = fleet.worker(id)
    run_leader_only(fleet)
    assert fleet.owners("t") == {0: id}
    return worker


def taken_over(fleet: OwnershipFleet, id: str) -> OwnershipWorker:
    """A worker that joins, and gets t/0 after the rebalance delay of its lost owner."""
    worker = fleet.worker(id)
    fleet.settle()
    fleet.wait(DELAY_S)
    fleet.settle()
    assert fleet.owners("t") == {0: id}
    return worker


def test_1_an_owner_frozen_before_its_first_commit_is_fenced(fleet: OwnershipFleet) -> None:
    a = fleet.worker("a")
    fleet.topic("t")
    run_leader_only(fleet)
    # a has its transactional id and its proof, and freezes in its first transaction.
    a.start_until_it_freezes_committing(P)
    fleet.freeze(a)
    assert fleet.offset(P) == -1
    epoch = fleet.ledger.epochs["test.source.target.a.0"]
    # a never reported that it started; c fences it nevertheless, and starts.
    c = taken_over(fleet, "c")
    assert fleet.ledger.epochs["test.source.target.a.0"] > epoch
    committed = fleet.offset(P)
    assert fleet.written_by(P) == "c"
    # a thaws in the middle of its commit.
    fleet.thaw(a)
    a.process_until(lambda: P in a.reasons)
    assert "not assigned to this worker any more" in a.reasons[P]
    assert (fleet.offset(P), fleet.written_by(P)) == (committed, "c")
    # c, which was not fenced, continues.
    c.commit(P)
    assert fleet.offset(P) > committed


def test_2_an_owner_without_a_commit_is_fenced_too(fleet: OwnershipFleet) -> None:
    a = copying(fleet, "a")
    fleet.freeze(a)
    b = fleet.worker("b")
    run_leader_only(fleet)
    fleet.wait(DELAY_S)
    run_leader_only(fleet)
    # b reads the position and starts. It freezes before it commits or reports.
    b.read()
    b.start(P)
    assert P in b.begun
    fleet.freeze(b)
    position = fleet.offset(P)
    c = placed_after(fleet, "c", DELAY_S)
    assert fleet.fences("c") == ids_of("a", 1) | ids_of("b", 1)
    c.catch_up()
    assert fleet.offset(P) > position
    for former in (a, b):
        before = fleet.offset(P)
        fleet.thaw(former)
        former.commit(P)
        assert P not in former.begun
        assert (fleet.offset(P), fleet.written_by(P)) == (before, "c")


def test_3_a_restarted_worker_fences_its_own_frozen_process(fleet: OwnershipFleet) -> None:
    former = copying(fleet, "a")
    fleet.freeze(former)
    fleet.settle()
    given = fleet.entry("t")
    # Within the delay another process starts under the same id and keeps the partition.
    fleet.wait(DELAY_S / 2)
    latter = fleet.worker("a")
    fleet.settle()
    assert (fleet.entry("t").worker, fleet.entry("t").owner_epoch) == ("a", given.owner_epoch)
    latter.commit(P)
    before = fleet.offset(P)
    # The former process has the same id and owner epoch, but another session.
    fleet.thaw(former)
    former.commit(P)
    assert "another process" in former.reasons[P]
    assert fleet.offset(P) == before
    # Its proof request initialised the id and fenced its successor, which proves itself and continues.
    latter.commit(P)
    assert fleet.offset(P) == before
    assert P in latter.begun
    latter.commit(P)
    assert fleet.offset(P) > before


def test_4_a_worker_whose_main_loop_hangs_loses_its_partitions_and_its_commits(
    fleet: OwnershipFleet,
) -> None:
    a = copying(fleet, "a")
    fleet.hang(a)
    b = fleet.worker("b")
    fleet.settle()
    # Its session lives, its copier copies and commits: undetected until a release is requested.
    fleet.tag("a", draining=True)
    fleet.settle()
    a.commit(P)
    assert P not in b.begun
    assert fleet.written_by(P) == "a"
    # It does not release in time: it is evicted, and its id fenced by the next owner.
    fleet.wait(HANDOVER_S)
    run_leader_only(fleet)
    b.catch_up()
    before = fleet.offset(P)
    assert fleet.written_by(P) == "b"
    a.commit(P)
    assert P not in a.begun
    assert (fleet.offset(P), fleet.written_by(P)) == (before, "b")


def test_5_an_idle_position_is_renewed_before_it_expires() -> None:
    with closing(Line(MemoryKafka("A", {"t": 1}), MemoryKafka("B", {"t": 1}))) as line:
        fill(line, ("t", 0), 1)
        (idle,) = line.add(0)
        line.run(lambda: line.copied(idle))
        committed_at_s = line.now_s
        # Ten days without a record, in steps of half an hour. Offsets expire after seven days.
        for _ in range(10 * 48):
            before = line.ownership.commits
            line.turn(skip_s=HOUR_S / 2)
            if line.ownership.commits > before:
                committed_at_s = line.now_s
            assert line.now_s - committed_at_s < 24 * HOUR_S < RETENTION_S
        assert line.ownership.stored[idle] == line.source.logs[("t", 0)].end


def test_5_an_expired_position_is_an_error(
    fleet: OwnershipFleet,
) -> None:
    a = copying(fleet, "a")
    fleet.kill(a)
    # The whole fleet was down for longer than the retention of offsets.
    fleet.ledger.positions.clear()
    b = placed_after(fleet, "b", RETENTION_S)
    b.catch_up()
    assert b.reasons[P] == "position lost: one was committed once"
    assert fleet.ledger.positions == {}


def test_6_a_topic_recreated_while_the_fleet_is_down_is_detected(
    fleet: OwnershipFleet,
) -> None:
    a = copying(fleet, "a")
    before = fleet.offset(P)
    fleet.kill(a)
    # Under the same name, with more records than the position says.
    fleet.source.model.topic_ids["t"] = "another id"
    fleet.source.model.hold(start=0, end=10 * before)
    b = placed_after(fleet, "b", DELAY_S)
    b.catch_up()
    reason = "source topic was recreated since the position was committed"
    assert b.reasons[P] == f"{reason}: its id was A-t, now it is another id (on_gap: stop)"
    assert (fleet.offset(P), fleet.written_by(P)) == (before, "a")


def test_7_a_former_leader_cannot_write() -> None:
    fleet = ControllerFleet()
    fleet.one.run()
    node = fleet.client.get(PATHS.leader)
    assert node is not None
    mine, epoch = node.stat.version, fleet.one.leadership.epoch()
    assert epoch is not None
    # one freezes until its session has expired; two is elected and creates the node again.
    fleet.one.client.suspend()
    fleet.store.expire(fleet.one.client._session)
    fleet.two.run()
    assert fleet.two.leads
    fleet.one.client.restore()
    # A check of that node proves nothing: the successor's node has the same version.
    node = fleet.client.get(PATHS.leader)
    assert node is not None
    assert node.stat.version == mine
    fleet.one.client.transact([Check(PATHS.leader, mine), Create("/believed", b"")])
    # The epoch only grows, so no write of the former leader goes through.
    with pytest.raises(Conflict):
        fleet.one.client.transact([Check(PATHS.epoch, epoch), Create("/stale", b"")])
    assert fleet.client.get("/stale") is None
    assert fleet.one.executor.write([Create("/stale", b"")], epoch) == "deposed"
    fleet.one.run()
    assert not fleet.one.leads


@pytest.mark.parametrize("applied", [True, False])
def test_8_a_write_with_a_lost_response_is_read_back_and_done_once(
    rest: RestFixture, applied: bool
) -> None:
    # The write was applied, or not; the client cannot know.
    rest.coordination.lose_next_response(applied=applied)
    assert rest.call("POST", "/topics/orders").status_code == 201
    intent = rest.intent("orders")
    assert intent is not None
    # The response is right: the intent is durable, and a second POST is a conflict.
    assert rest.call("POST", "/topics/orders").status_code == 409
    assert rest.intent("orders") == intent
    # The same for a change of an existing intent.
    rest.coordination.lose_next_response(applied=applied)
    assert rest.call("DELETE", "/topics/orders").status_code == 200
    deleted = rest.intent("orders")
    assert deleted is None or deleted.state == "deleting"
