"""Eight histories in which somebody could lose records, repeat them, or write what is no longer theirs.

Each is told from its beginning to its end. Where ownership is at stake, the plan, the proof and the
ownership of the copiers are the real code (`ureplicator_testkit.control.history`).

    1  an owner freezes before its first commit, another takes over, the first thaws
    2  an owner, a second one that never committed, a third one
    3  a worker restarts under its id while its former process is frozen
    4  a worker's main loop hangs while its ZooKeeper session lives
    5  a partition is idle for longer than the target keeps offsets
    6  a topic is deleted and recreated while the fleet is down
    7  a successor's leader node has version 0 while the former leader still writes
    8  a REST write is applied and its answer is lost
"""

from collections.abc import Iterator
from contextlib import closing

import pytest

from ureplicator_common.coordination import Check, Conflict, Create
from ureplicator_testkit.control.fleet import ids_of, partition
from ureplicator_testkit.control.history import Stage, Worker
from ureplicator_testkit.control.machines import PATHS, Fleet
from ureplicator_testkit.control.rest_fixture import RestFixture
from ureplicator_testkit.copier.line import Line, fill
from ureplicator_testkit.kafka.memory_kafka import MemoryKafka

P = partition("t")
DELAY_S = 120
HANDOVER_S = 30
HOUR_S = 3600.0
RETENTION_S = 7 * 24 * HOUR_S


@pytest.fixture
def stage() -> Iterator[Stage]:
    stage = Stage()
    yield stage
    stage.close()


def copying(stage: Stage, id: str) -> Worker:
    """A worker that copies t/0, and has committed some of it."""
    worker = stage.worker(id)
    stage.topic("t")
    stage.settle()
    assert stage.owners("t") == {0: id}
    assert stage.offset(P) > 0
    return worker


def leader_alone(stage: Stage) -> None:
    """The leader does what it has to; no worker answers meanwhile."""
    for _ in range(3):
        stage.cycle()


def come_after(stage: Stage, id: str, seconds: float) -> Worker:
    """A worker that is given t/0 when nobody has had it for so long; it did not look at it yet."""
    leader_alone(stage)
    stage.wait(seconds)
    worker = stage.worker(id)
    leader_alone(stage)
    assert stage.owners("t") == {0: id}
    return worker


def taken_over(stage: Stage, id: str) -> Worker:
    """A worker that comes, and is given t/0 once the delay of its lost owner has ended."""
    worker = stage.worker(id)
    stage.settle()
    stage.wait(DELAY_S)
    stage.settle()
    assert stage.owners("t") == {0: id}
    return worker


def test_1_who_freezes_before_its_first_commit_never_makes_it(stage: Stage) -> None:
    a = stage.worker("a")
    stage.topic("t")
    leader_alone(stage)
    # a has its transactional id and its proof, and opens its first transaction. There it freezes.
    a.start_until_it_freezes_committing(P)
    stage.freeze(a)
    assert stage.offset(P) == -1
    # Nobody ever heard that a began; c fences it all the same, and begins.
    c = taken_over(stage, "c")
    assert stage.ledger.epochs["test.source.target.a.0"] > 0
    committed = stage.offset(P)
    assert stage.written_by(P) == "c"
    # a thaws in the middle of its commit.
    stage.thaw(a)
    a.hear(lambda: P in a.reasons)
    assert "not assigned to this worker any more" in a.reasons[P]
    assert (stage.offset(P), stage.written_by(P)) == (committed, "c")
    # And c, which nobody fenced, goes on.
    c.commit(P)
    assert stage.offset(P) > committed


def test_2_who_never_committed_is_fenced_like_who_did(stage: Stage) -> None:
    a = copying(stage, "a")
    stage.freeze(a)
    b = stage.worker("b")
    leader_alone(stage)
    stage.wait(DELAY_S)
    leader_alone(stage)
    # b reads the position and begins. Before it commits, or says that it began, it freezes.
    b.read()
    b.start(P)
    assert P in b.begun
    stage.freeze(b)
    position = stage.offset(P)
    c = come_after(stage, "c", DELAY_S)
    assert stage.fences("c") == ids_of("a", 1) | ids_of("b", 1)
    c.obey()
    assert stage.offset(P) > position
    for former in (a, b):
        before = stage.offset(P)
        stage.thaw(former)
        former.commit(P)
        assert P not in former.begun
        assert (stage.offset(P), stage.written_by(P)) == (before, "c")


def test_3_a_restarted_worker_fences_its_own_frozen_process(stage: Stage) -> None:
    former = copying(stage, "a")
    stage.freeze(former)
    stage.settle()
    given = stage.entry("t")
    # Within the delay another process comes under the same id, and finds everything as it was.
    stage.wait(DELAY_S / 2)
    latter = stage.worker("a")
    stage.settle()
    assert (stage.entry("t").worker, stage.entry("t").owner_epoch) == ("a", given.owner_epoch)
    latter.commit(P)
    before = stage.offset(P)
    # The same owner epoch, the same id: but the session is another's.
    stage.thaw(former)
    former.commit(P)
    assert "another process" in former.reasons[P]
    assert stage.offset(P) == before
    # To ask, it had to initialise the id: that fenced its successor, which proves itself and goes on.
    latter.commit(P)
    assert stage.offset(P) == before
    assert P in latter.begun
    latter.commit(P)
    assert stage.offset(P) > before


def test_4_a_worker_whose_main_loop_hangs_loses_its_partitions_and_its_commits(
    stage: Stage,
) -> None:
    a = copying(stage, "a")
    stage.hang(a)
    b = stage.worker("b")
    stage.settle()
    # Its session lives, its copier copies and commits: nobody notices before something is asked of it.
    stage.tag("a", draining=True)
    stage.settle()
    a.commit(P)
    assert P not in b.begun
    assert stage.written_by(P) == "a"
    # It does not let go in time: its live node is deleted, and its id fenced by the next owner.
    stage.wait(HANDOVER_S)
    leader_alone(stage)
    b.obey()
    before = stage.offset(P)
    assert stage.written_by(P) == "b"
    a.commit(P)
    assert P not in a.begun
    assert (stage.offset(P), stage.written_by(P)) == (before, "b")


def test_5_an_idle_position_is_committed_long_before_it_fades() -> None:
    with closing(Line(MemoryKafka("A", {"t": 1}), MemoryKafka("B", {"t": 1}))) as line:
        fill(line, ("t", 0), 1)
        (idle,) = line.add(0)
        line.run(lambda: line.copied(idle))
        committed_at_s = line.now_s
        # Ten days without a record, half an hour by half an hour. Offsets go after seven days.
        for _ in range(10 * 48):
            before = line.ownership.commits
            line.turn(skip_s=HOUR_S / 2)
            if line.ownership.commits > before:
                committed_at_s = line.now_s
            assert line.now_s - committed_at_s < 24 * HOUR_S < RETENTION_S
        assert line.ownership.stored[idle] == line.source.logs[("t", 0)].end


def test_5_a_position_that_has_faded_is_an_error_and_no_new_beginning(stage: Stage) -> None:
    a = copying(stage, "a")
    stage.kill(a)
    # The whole fleet was down for longer than the target keeps offsets.
    stage.ledger.positions.clear()
    b = come_after(stage, "b", RETENTION_S)
    b.obey()
    assert b.reasons[P] == "position lost: one was committed once"
    assert stage.ledger.positions == {}


def test_6_a_recreated_topic_while_nobody_looked_is_not_taken_for_the_former(stage: Stage) -> None:
    a = copying(stage, "a")
    before = stage.offset(P)
    stage.kill(a)
    # Under the same name, with more records than the position says.
    stage.source.model.topic_ids["t"] = "another id"
    stage.source.model.hold(start=0, end=10 * before)
    b = come_after(stage, "b", DELAY_S)
    b.obey()
    reason = "source topic was recreated since the position was committed"
    assert b.reasons[P] == f"{reason}: its id was A-t, now it is another id (on_gap: stop)"
    assert (stage.offset(P), stage.written_by(P)) == (before, "a")


def test_7_a_former_leader_writes_nothing_though_the_leader_s_node_looks_like_its_own() -> None:
    fleet = Fleet()
    fleet.one.run()
    node = fleet.hand.get(PATHS.leader)
    assert node is not None
    mine, epoch = node.stat.version, fleet.one.leadership.epoch()
    assert epoch is not None
    # one stands still until its session has ended; two is elected, and makes the node anew.
    fleet.one.client.suspend()
    fleet.store.expire(fleet.one.client._session)
    fleet.two.run()
    assert fleet.two.leads
    fleet.one.client.restore()
    # A check of that node proves nothing: the successor's has the same version.
    node = fleet.hand.get(PATHS.leader)
    assert node is not None
    assert node.stat.version == mine
    fleet.one.client.transact([Check(PATHS.leader, mine), Create("/believed", b"")])
    # The epoch only grows, so no write of the former leader goes through.
    with pytest.raises(Conflict):
        fleet.one.client.transact([Check(PATHS.epoch, epoch), Create("/stale", b"")])
    assert fleet.hand.get("/stale") is None
    assert fleet.one.executor.write([Create("/stale", b"")], epoch) == "deposed"
    fleet.one.run()
    assert not fleet.one.leads


@pytest.mark.parametrize("applied", [True, False])
def test_8_a_write_whose_answer_was_lost_is_read_back_and_done_once(applied: bool) -> None:
    rest = RestFixture()
    # ZooKeeper took it, or did not; whoever asked it never hears which.
    rest.coordination.lose_next_answer(applied=applied)
    assert rest.call("POST", "/topics/orders").status_code == 201
    intent = rest.intent("orders")
    assert intent is not None
    # The caller is told the truth: the intent is durable, and asking again is a conflict.
    assert rest.call("POST", "/topics/orders").status_code == 409
    assert rest.intent("orders") == intent
    # The same for what changes something that is there.
    rest.coordination.lose_next_answer(applied=applied)
    assert rest.call("DELETE", "/topics/orders").status_code == 200
    deleted = rest.intent("orders")
    assert deleted is None or deleted.state == "deleting"
