"""One broker of three is lost for a while: each partition stands still no longer than a plain producer's.

Every test ends with both logs, of two routes, and all commits, read from the beginning.
"""

from concurrent.futures import ThreadPoolExecutor

import pytest

from ureplicator_testkit.fleet.real_fleet import Fleet
from ureplicator_testkit.records.flow import Flow
from ureplicator_testkit.records.watched import WatchedTopic
from ureplicator_testkit.servers.replicated import BROKERS, ReplicatedServers

FROZEN_S = 15


def judge(flows: list[Flow], watched: WatchedTopic) -> None:
    watched.assert_no_slower_than_producers()
    for flow in flows:
        flow.judge()
    watched.judge()


@pytest.mark.parametrize(
    ("end", "broker"),
    [
        pytest.param("target", 1, id="first seed of the target"),
        pytest.param("target", 2, id="coordinator of the positions' group"),
        pytest.param("target", 3, id="coordinator of the transactional ids"),
        pytest.param("source", 1, id="first seed of the source"),
    ],
)
def test_a_broker_is_killed(
    site: ReplicatedServers,
    fleet: Fleet,
    flows: list[Flow],
    watched: WatchedTopic,
    end: str,
    broker: int,
) -> None:
    watched.begin()
    site.cluster(end).kill(broker)
    fleet.wait_seconds(1)
    watched.wait_moving()
    watched.assert_well_elsewhere(broker)
    site.cluster(end).restart(broker)
    judge(flows, watched)


@pytest.mark.parametrize(("end", "broker"), [("target", 2), ("source", 3)])
def test_a_broker_freezes(
    site: ReplicatedServers,
    fleet: Fleet,
    flows: list[Flow],
    watched: WatchedTopic,
    end: str,
    broker: int,
) -> None:
    watched.begin()
    site.cluster(end).pause_broker(broker)
    fleet.wait_seconds(FROZEN_S)
    watched.assert_well_elsewhere(broker)
    site.cluster(end).resume_broker(broker)
    watched.wait_moving()
    judge(flows, watched)


def test_all_brokers_are_restarted_in_turn(
    site: ReplicatedServers, fleet: Fleet, flows: list[Flow], watched: WatchedTopic
) -> None:
    """One of the source and one of the target at a time; the next when all replicas are in sync."""
    watched.begin()
    for broker in range(1, BROKERS + 1):
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda cluster: cluster.restart(broker), site.clusters))  # noqa: B023
        site.heal()
    watched.wait_moving()
    judge(flows, watched)
