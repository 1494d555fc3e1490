"""Processes of ours die, freeze or are told to stop while records flow; nothing is lost.

Each test ends with both logs compared from their beginning.
"""

import os
import signal
from collections.abc import Callable

from ureplicator_testkit.clusters import KafkaCluster, ZooKeeperServer
from ureplicator_testkit.fleet import REBALANCE_DELAY_S, SESSION_TIMEOUT_S, Fleet, Load, pids_of
from ureplicator_testkit.processes import eventually
from ureplicator_testkit.topics import compare_logs, offsets

Servers = tuple[ZooKeeperServer, KafkaCluster, KafkaCluster]
StartFleet = Callable[..., Fleet]

PARTITIONS = 4
RATE = 2_000
COMMIT_INTERVAL_S = 0.5
SLACK_S = 2.0
"""What may pass between two commits on a busy machine, over the interval."""


def wait_caught_up(fleet: Fleet, servers: Servers, topic: str, deadline_s: float = 40) -> None:
    """Everything in the source, as of now, has a committed position behind it."""
    ends = {
        number: end
        for number, (_, end) in offsets(
            servers[1].bootstrap, topic, isolation="read_committed"
        ).items()
    }

    def caught_up() -> bool:
        positions = fleet.rest("GET", f"/topics/{topic}")["positions"] or {}
        return all((positions.get(str(number)) or -1) >= end for number, end in ends.items())

    eventually(caught_up, deadline_s, f"{topic} is caught up")


def copying(fleet: Fleet, servers: Servers, topic: str) -> None:
    """Whitelist, and wait until the backlog is copied: from then on commits follow closely."""
    fleet.whitelist(topic)
    fleet.wait_online(topic, PARTITIONS)
    wait_caught_up(fleet, servers, topic)


def judge(servers: Servers, topic: str, *, most_duplicates: int = 0) -> None:
    comparison = compare_logs(servers[1].bootstrap, servers[2].bootstrap, topic)
    comparison.assert_faultless(most_duplicates=most_duplicates)


def since_a_commit(times: int = 1) -> int:
    """Records that may lie between a commit and the next."""
    return int(times * RATE * (COMMIT_INTERVAL_S + SLACK_S))


def test_a_worker_killed_is_replaced_and_nothing_is_lost(
    servers: Servers, filled_topic: str, start_fleet: StartFleet
) -> None:
    fleet = start_fleet(workers=2)
    with Load(
        servers[1].bootstrap, filled_topic, partitions=PARTITIONS, records_per_s=RATE
    ) as load:
        copying(fleet, servers, filled_topic)
        victim = next(iter(set(fleet.owners(filled_topic).values())))
        survivor = ({"w1", "w2"} - {victim}).pop()
        os.kill(fleet.workers[victim].pid, signal.SIGKILL)
        fleet.workers[victim].assert_tree_gone(20)
        limit_s = SESSION_TIMEOUT_S + REBALANCE_DELAY_S + 8
        eventually(
            lambda: (
                set(fleet.owners(filled_topic).values()) == {survivor}
                and len(fleet.owners(filled_topic)) == PARTITIONS
            ),
            limit_s,
            "the survivor has all",
        )
    assert load.acknowledged
    wait_caught_up(fleet, servers, filled_topic)
    fleet.stop()
    judge(servers, filled_topic, most_duplicates=since_a_commit())


def test_a_copier_s_python_process_killed_is_back_on_its_worker_in_5_s(
    servers: Servers, filled_topic: str, start_fleet: StartFleet
) -> None:
    fleet = start_fleet()
    with Load(servers[1].bootstrap, filled_topic, partitions=PARTITIONS, records_per_s=RATE):
        copying(fleet, servers, filled_topic)
        worker = fleet.workers["w1"]
        (slot,) = fleet.status("w1")["slots"]
        os.kill(slot["pid"], signal.SIGKILL)
        eventually(
            lambda: fleet.status("w1")["slots"][0]["pid"] not in (None, slot["pid"]),
            5,
            "another copier runs",
        )
        fleet.wait_online(filled_topic, PARTITIONS, deadline_s=5)
        worker.assert_running()
    wait_caught_up(fleet, servers, filled_topic)
    fleet.stop()
    judge(servers, filled_topic, most_duplicates=since_a_commit())


def test_a_jvm_killed_ends_the_worker_and_its_successor_goes_on(
    servers: Servers, filled_topic: str, start_fleet: StartFleet
) -> None:
    fleet = start_fleet()
    with Load(servers[1].bootstrap, filled_topic, partitions=PARTITIONS, records_per_s=RATE):
        copying(fleet, servers, filled_topic)
        worker = fleet.workers["w1"]
        (jvm,) = pids_of(worker, "java")
        os.kill(jvm, signal.SIGKILL)
        assert worker.wait(15) == 1
        worker.assert_tree_gone(15)
        fleet.start_worker("w1")
        fleet.wait_online(filled_topic, PARTITIONS)
    wait_caught_up(fleet, servers, filled_topic)
    fleet.stop()
    judge(servers, filled_topic, most_duplicates=since_a_commit())


def test_a_clean_stop_loses_nothing_and_repeats_nothing(
    servers: Servers, filled_topic: str, start_fleet: StartFleet
) -> None:
    fleet = start_fleet()
    with Load(servers[1].bootstrap, filled_topic, partitions=PARTITIONS, records_per_s=RATE):
        copying(fleet, servers, filled_topic)
        worker = fleet.workers["w1"]
        assert worker.terminate() == 0
        worker.assert_tree_gone()
        fleet.start_worker("w1")
        fleet.wait_online(filled_topic, PARTITIONS)
    wait_caught_up(fleet, servers, filled_topic)
    fleet.stop()
    judge(servers, filled_topic)


def test_a_worker_that_thaws_after_its_partitions_moved_does_no_harm(
    servers: Servers, filled_topic: str, start_fleet: StartFleet
) -> None:
    fleet = start_fleet(workers=2)
    with Load(servers[1].bootstrap, filled_topic, partitions=PARTITIONS, records_per_s=RATE):
        copying(fleet, servers, filled_topic)
        victim = next(iter(set(fleet.owners(filled_topic).values())))
        survivor = ({"w1", "w2"} - {victim}).pop()
        fleet.workers[victim].pause()
        eventually(
            lambda: (
                set(fleet.owners(filled_topic).values()) == {survivor}
                and len(fleet.owners(filled_topic)) == PARTITIONS
            ),
            SESSION_TIMEOUT_S + REBALANCE_DELAY_S + 10,
            "the survivor has all",
        )
        fleet.workers[victim].resume()
        fleet.wait_workers(victim)
        fleet.wait_online(filled_topic, PARTITIONS)
    wait_caught_up(fleet, servers, filled_topic)
    fleet.stop()
    judge(servers, filled_topic, most_duplicates=since_a_commit(times=4))


def test_a_short_freeze_moves_nothing(
    servers: Servers, filled_topic: str, start_fleet: StartFleet
) -> None:
    fleet = start_fleet(workers=2)
    with Load(servers[1].bootstrap, filled_topic, partitions=PARTITIONS, records_per_s=RATE):
        copying(fleet, servers, filled_topic)
        before = fleet.owners(filled_topic)
        fleet.workers["w1"].pause()
        fleet.wait_seconds(SESSION_TIMEOUT_S / 3)
        fleet.workers["w1"].resume()
        fleet.wait_online(filled_topic, PARTITIONS)
        assert fleet.owners(filled_topic) == before
    wait_caught_up(fleet, servers, filled_topic)
    fleet.stop()
    judge(servers, filled_topic)


def test_a_leader_killed_is_followed_by_another_and_copying_goes_on(
    servers: Servers, filled_topic: str, topic: str, start_fleet: StartFleet
) -> None:
    fleet = start_fleet(controllers=2)
    with Load(servers[1].bootstrap, filled_topic, partitions=PARTITIONS, records_per_s=RATE):
        copying(fleet, servers, filled_topic)
        leader = fleet.leader()
        fleet.controllers[leader][0].kill_tree()
        eventually(
            lambda: fleet.leader() not in ("", leader), SESSION_TIMEOUT_S + 10, "another leads"
        )
        fleet.wait_online(filled_topic, PARTITIONS)
    wait_caught_up(fleet, servers, filled_topic)
    fleet.stop()
    judge(servers, filled_topic)
