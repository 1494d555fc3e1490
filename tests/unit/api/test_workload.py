"""/noprogress and /admin/workloadinfo: what workers measured, shown by every controller."""

from __future__ import annotations

from ureplicator_common.model import Partition, PartitionState
from ureplicator_common.znode_contents import PartitionLoad, TopicIntent
from ureplicator_testkit.control.rest_fixture import ROUTE, RestFixture

ERROR, ONLINE = PartitionState.ERROR, PartitionState.ONLINE
STILL_S = 700.0


def load(
    *, mb: float = 1.0, lag: int = 0, still_s: float = 0.0, records_per_s: float = 10.0
) -> PartitionLoad:
    return PartitionLoad(
        steady_bytes_per_s=mb * 1_000_000,
        records_per_s=records_per_s,
        measured_s=300,
        held_s=1_000,
        no_progress_s=still_s,
        position=500,
        committed=450,
        lag=lag,
    )


def orders(number: int) -> Partition:
    return Partition(ROUTE, "orders", number)


def copied_by_two(rest: RestFixture) -> None:
    rest.put_intent("orders", TopicIntent(3, 3, target_topic="orders"))
    rest.place("orders", {0: "w1", 1: "w1", 2: "w2"})
    for worker in ("w1", "w2"):
        rest.add_worker(worker)
    rest.put_states("w1", "orders", {0: ONLINE, 1: ONLINE})
    rest.put_states("w2", "orders", {2: ERROR}, reason="source: unreachable")


def test_partitions_without_progress_are_listed_with_their_reason(rest: RestFixture) -> None:
    copied_by_two(rest)
    rest.put_loads("w1", {orders(0): load(), orders(1): load(lag=5, still_s=599)})
    rest.put_loads("w2", {orders(2): load(lag=-1, still_s=STILL_S)})
    (stuck,) = rest.call("GET", "/noprogress").get_json()["topics"]
    since_ms = rest.clock.wall_ms() - 700_000
    assert stuck == {
        "topic": "orders",
        "partition": 2,
        "route": "source.target",
        "idealWorker": "w2",
        "actualWorker": "w2",
        "since": since_ms,
        "lag": None,
        "position": 450,
        "moves": 0,
        "reason": "source: unreachable",
    }


def test_measurements_of_a_former_owner_are_not_listed(rest: RestFixture) -> None:
    copied_by_two(rest)
    rest.put_loads("w1", {orders(2): load(lag=5, still_s=STILL_S)})
    assert rest.call("GET", "/noprogress").get_json() == {"topics": []}


def test_workload_of_workers_and_topics(rest: RestFixture) -> None:
    copied_by_two(rest)
    rest.put_loads("w1", {orders(0): load(mb=2), orders(1): load(mb=3, records_per_s=1)})
    rest.put_loads("w2", {orders(2): load(lag=200_000)})
    shown = rest.call("GET", "/admin/workloadinfo").get_json()
    assert shown["autoBalancingEnabled"] is True
    assert shown["topicWorkload"] == {
        "partitions": 3,
        "bytesPerSecond": 6_000_000,
        "msgsPerSecond": 21.0,
    }
    assert shown["topics"] == [
        {"topic": "orders", "route": "source.target", **shown["topicWorkload"]}
    ]
    first, second = shown["workerInstances"]
    assert (first["workerId"], first["totalWorkload"]) == ("w1", 5_000_000)
    assert (first["numberOfTopicPartitions"], first["settledPartitions"]) == (2, 2)
    assert first["laggingTopicPartition"] == []
    assert shown["numOfLaggingWorkers"] == 1
    assert second["laggingTopicPartition"] == [
        {
            "topicName": "orders",
            "partitionId": 2,
            "route": "source.target",
            "latestOffset": 200_500,
            "commitOffset": 450,
            "lag": 200_000,
            "lagTime": 20_000,
        }
    ]


def test_a_short_lag_is_not_listed(rest: RestFixture) -> None:
    copied_by_two(rest)
    rest.put_loads("w2", {orders(2): load(lag=200_000, records_per_s=1_000)})
    shown = rest.call("GET", "/admin/workloadinfo").get_json()
    assert shown["numOfLaggingWorkers"] == 0


def test_workers_with_unreadable_loads_are_shown_without_figures(rest: RestFixture) -> None:
    copied_by_two(rest)
    rest.put(rest.paths.measures.load("w1"), b"\x78garbage", ephemeral=True)  # type: ignore[arg-type]
    first, second = rest.call("GET", "/admin/workloadinfo").get_json()["workerInstances"]
    assert first["numberOfTopicPartitions"] == second["numberOfTopicPartitions"] == 0
    assert rest.call("GET", "/noprogress").get_json() == {"topics": []}


def test_expected_workers_are_those_for_the_bytes_one_more_and_the_lagging(
    rest: RestFixture,
) -> None:
    """Workers are counted as uReplicator does, with what a worker is expected to copy as a setting."""
    copied_by_two(rest)
    rest.put_loads("w1", {orders(0): load(mb=60), orders(1): load(mb=70)})
    rest.put_loads("w2", {orders(2): load(mb=20, lag=200_000, records_per_s=1.0)})
    shown = rest.call("GET", "/admin/workloadinfo").get_json()
    assert shown["topicWorkload"]["bytesPerSecond"] == 150_000_000
    assert (shown["numOfLaggingWorkers"], shown["numOfExpectedWorkers"]) == (1, 3 + 1 + 1)


def test_a_quiet_fleet_needs_one(rest: RestFixture) -> None:
    assert rest.call("GET", "/admin/workloadinfo").get_json()["numOfExpectedWorkers"] == 1
