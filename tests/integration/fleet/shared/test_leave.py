"""A worker that leaves under load hands its share over: at once, and without a repeat."""

from __future__ import annotations

import itertools
import signal
from contextlib import AbstractContextManager

from ureplicator_testkit.fleet.real_fleet import Fleet
from ureplicator_testkit.records.load import repeating
from ureplicator_testkit.records.topics import NewRecord, create_topic, produce, read_all
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.processes import eventually

PARTITIONS = 4
LEAVE_S = 40.0
COPIED_S = 40.0


def load(cluster: KafkaCluster, topic: str) -> AbstractContextManager[None]:
    """Records whose values count up arrive in every partition."""
    numbers = itertools.count()

    def send() -> None:
        number = b"%d" % next(numbers)
        records = [NewRecord(number, None, partition) for partition in range(PARTITIONS)]
        produce(cluster.bootstrap, topic, records)

    return repeating(send)


def values(cluster: KafkaCluster, topic: str) -> list[list[bytes | None]]:
    logs = sorted(read_all(cluster.bootstrap, topic).items())
    return [[record.value for record in log] for _, log in logs]


def moves(fleet: Fleet, topic: str) -> list[str]:
    """Reasons of the moves of its partitions, the latest first."""
    shown = fleet.rest("GET", f"/history?topic={topic}&kind=move")["history"]
    return [move["reason"] for move in shown]


def test_share_of_a_worker_that_leaves_moves_at_once_and_without_a_repeat(
    running: Fleet, source_cluster: KafkaCluster, target_cluster: KafkaCluster, topic: str
) -> None:
    """The worker is stopped as Kubernetes stops a pod: by the hook's SIGUSR1, then SIGTERM."""
    fleet = running
    create_topic(source_cluster.bootstrap, topic, partitions=PARTITIONS)
    fleet.whitelist(topic)
    fleet.wait_online(topic, PARTITIONS)
    eventually(
        lambda: len(set(fleet.owners(topic).values())) == 2, LEAVE_S, "both workers own some"
    )
    with load(source_cluster, topic):
        leaving, other = sorted(set(fleet.owners(topic).values()))
        share = list(fleet.owners(topic).values()).count(leaving)
        before = len(moves(fleet, topic))
        fleet.workers[leaving].send(signal.SIGUSR1)
        fleet.workers[leaving].send(signal.SIGTERM)
        assert fleet.workers[leaving].wait(LEAVE_S) == 0
        fleet.wait_online(topic, PARTITIONS)
        assert set(fleet.owners(topic).values()) == {other}
        moved = moves(fleet, topic)[:-before]
        assert moved == [f"worker {leaving} leaves"] * share, "it was there meanwhile"
    wanted = values(source_cluster, topic)
    count = sum(map(len, wanted))
    copied = lambda: sum(map(len, values(target_cluster, topic))) >= count  # noqa: E731
    eventually(copied, COPIED_S, f"{topic} is copied")
    assert values(target_cluster, topic) == wanted, "nothing is lost or repeated"
