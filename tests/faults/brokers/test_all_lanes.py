"""Both deliveries, with and without a handler, while the target's brokers move, restart and die.

All four flow at once. A fleet of its own copies them; each test ends with both logs, and all commits, read
from the beginning.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from ureplicator_common.model import WorkerId, transactional_ids
from ureplicator_testkit.fleet.real_fleet import Fleet
from ureplicator_testkit.histories.events import Fault
from ureplicator_testkit.records.flow import Flow
from ureplicator_testkit.records.four_flows import ONCE, ROUTES, start_four_flows
from ureplicator_testkit.servers.network import ALIASES
from ureplicator_testkit.servers.replicas import (
    ROTATED,
    group_coordinator,
    reassign,
    settle,
    transaction_coordinator,
)
from ureplicator_testkit.servers.replicated import BROKERS, ReplicatedServers

WORKER, SLOTS = "w1", 1
EACH = {"partitions": len(ROTATED), "rate": 100}


@pytest.fixture(scope="module")
def running(site: ReplicatedServers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("four-flows")
    site.heal()
    fleet = Fleet(
        name=folder.name,
        folder=folder,
        zookeeper=site.zookeeper.hosts,
        source=site.source.bootstrap,
        target=site.target.bootstrap,
        routes=ROUTES,
        worker={"slots": SLOTS},
        aliases=ALIASES,
    )
    try:
        yield fleet.start()
    finally:
        fleet.kill()


@pytest.fixture
def flow(site: ReplicatedServers, fleet: Fleet, topic: str) -> Iterator[Flow]:
    with ExitStack() as ends:
        flow = start_four_flows(site, fleet, topic, first=EACH, others=EACH, ends=ends)
        yield flow
        flow.delete()


@pytest.mark.all_lanes
def test_leaders_change_brokers_restart_in_turn_and_one_is_killed(
    site: ReplicatedServers, fleet: Fleet, flow: Flow
) -> None:
    reassign(site.target, flow.copy, [[*brokers[1:], brokers[0]] for brokers in ROTATED])
    settle(site.target)
    flow.history.add(Fault("preferred leaders are elected"))
    flow.assert_copying(deadline_s=40)
    for broker in range(1, BROKERS + 1):
        site.target.restart(broker)
        settle(site.target)
        flow.history.add(Fault(f"broker {broker} was restarted"))
    flow.assert_copying(deadline_s=40)
    site.target.kill(1)
    fleet.wait_seconds(1)
    flow.assert_copying(deadline_s=60)
    site.target.restart(1)
    flow.judge()


@pytest.mark.all_lanes
@pytest.mark.parametrize("coordinator", ["transactions", "positions"])
def test_a_coordinator_is_killed_while_transactions_are_sealed(
    site: ReplicatedServers, fleet: Fleet, flow: Flow, coordinator: str
) -> None:
    """A transaction a tenth of a second: the broker dies between its flush and its end, or close by."""
    if coordinator == "positions":
        broker = group_coordinator(site.target, fleet.group(ONCE))
    else:
        (id,) = transactional_ids(
            fleet=fleet.name, route=ONCE, worker=WorkerId(WORKER), slots=SLOTS
        )
        broker = transaction_coordinator(site.target, id)
    site.target.kill(broker)
    began_s = time.monotonic()
    flow.history.add(Fault(f"SIGKILL: broker {broker}, coordinator of {coordinator}"))
    flow.assert_copying(deadline_s=60)
    flow.wait_caught_up(deadline_s=60)
    print(
        f"coordinator of {coordinator} killed: committed again {time.monotonic() - began_s:.1f} s"
    )
    site.target.restart(broker)
    settle(site.target)
    flow.judge()


@pytest.mark.all_lanes
@pytest.mark.parametrize("everywhere", [False, True], ids=["one broker", "every broker"])
def test_the_disk_under_the_positions_is_full(
    site: ReplicatedServers, fleet: Fleet, flow: Flow, everywhere: bool
) -> None:
    """A broker whose writes fail ends itself in the middle of an append, and repairs its log at its start."""
    coordinator = group_coordinator(site.target, fleet.group(ONCE))
    full = range(1, BROKERS + 1) if everywhere else [coordinator]
    for broker in full:
        site.target.process(broker).fill_disk()
    for broker in full:
        assert site.target.process(broker).wait(40) != 0
        flow.history.add(Fault(f"disk full: broker {broker}"))
    if not everywhere:
        flow.assert_copying(deadline_s=60)
    for broker in full:
        site.target.restart(broker)
    settle(site.target)
    flow.assert_copying(deadline_s=60)
    flow.judge()
