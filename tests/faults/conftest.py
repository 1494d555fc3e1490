"""Servers and one fleet that fault tests may break, shared by all of them.

Starting three Spark drivers takes longer than most faults, so the fleet (two controllers, three
workers) lives for the whole run, and every test leaves it healed. After a test that failed, the next
one gets a new fleet. A module sets the delays of its controllers with `DELAYS`.

| fault                                                              | module                |
|--------------------------------------------------------------------|-----------------------|
| a worker stops cleanly and flaps; its copier or its JVM is killed  | test_short_faults     |
| a worker, the leader frozen for a moment; a session expires        | test_short_faults     |
| a worker killed, frozen for long, hanging; a fleet of one          | test_long_faults      |
| the leader frozen for long, or killed in the middle of its plans   | test_long_faults      |
| Kafka killed; ZooKeeper without one server, without its quorum     | test_servers_go_away  |
| a worker or the leader cut off from ZooKeeper alone                | test_bad_networks     |
| a worker cut off from a cluster, each way; connections cut; slow   | test_bad_networks     |
| requests that arrive when their sender has been replaced           | test_bad_networks     |
| a clock that jumps an hour                                         | test_clocks           |
| a topic that is grown, or recreated                                | test_topics_change    |
| two faults at once, drawn from a seed                              | test_two_faults       |
| two versions in one fleet                                          | test_mixed_versions   |
| copiers, JVMs, workers, brokers killed at random, exactly once     | test_kills            |
| an executor, a Spark worker, the Spark master killed; a driver     |                       |
| frozen, killed, started twice                                      | test_spark_cluster    |
| one broker of three, and elections                                 | brokers/              |
"""

import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ureplicator_testkit.fleet.real_fleet import Fleet
from ureplicator_testkit.records.flow import Flow
from ureplicator_testkit.records.four_flows import ROUTES, start_four_flows
from ureplicator_testkit.servers.network import ALIASES, CONTROLLERS, WORKERS, BreakableServers

FEW: dict[str, int] = {"partitions": 3, "rate": 120}
AMONG_OTHERS = 400
"""Records a second of the flow that has others beside it: all together take no more time than one alone."""


class SharedFleet:
    """The servers, and the current fleet."""

    def __init__(self, folder: Path) -> None:
        self.site = BreakableServers()
        self._folder = folder
        self._fleet: Fleet | None = None
        self._sound = False

    def fleet(self, delays: dict[str, float]) -> Fleet:
        """A healthy fleet with these delays."""
        if self._fleet is not None and not self._sound:
            self._fleet.kill()
            self._fleet = None
            self.site.heal()
        self._sound = False
        if self._fleet is None:
            self._fleet = self._new_fleet(delays)
        self._fleet.use(**delays)
        return self._fleet

    def _new_fleet(self, delays: dict[str, float]) -> Fleet:
        name = f"faults-{uuid.uuid4().hex[:8]}"
        folder = self._folder / name
        folder.mkdir()
        fleet = Fleet(
            name=name,
            folder=folder,
            zookeeper=self.site.zookeeper.hosts,
            source=self.site.source.bootstrap,
            target=self.site.target.bootstrap,
            links=self.site.links,
            controller=delays,
            routes=ROUTES,
            aliases=ALIASES,
        )
        return fleet.start(controllers=len(CONTROLLERS), workers=len(WORKERS))

    def is_sound(self) -> None:
        """The previous test passed and left the fleet healed."""
        self._sound = True

    def close(self) -> None:
        """Stop cleanly, if the fleet can."""
        try:
            if self._fleet is not None and self._sound:
                self._fleet.stop()
        finally:
            if self._fleet is not None:
                self._fleet.kill()
            self.site.stop()


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedFleet]:
    shared = SharedFleet(tmp_path_factory.mktemp("fleets"))
    try:
        shared.site.start()
        yield shared
    finally:
        shared.close()


@pytest.fixture(scope="session")
def site(shared: SharedFleet) -> BreakableServers:
    return shared.site


@pytest.fixture
def fleet(shared: SharedFleet, request: pytest.FixtureRequest) -> Fleet:
    delays: dict[str, float] = request.module.DELAYS
    return shared.fleet(delays)


@pytest.fixture
def flow(
    shared: SharedFleet, fleet: Fleet, topic: str, request: pytest.FixtureRequest
) -> Iterator[Flow]:
    """A topic that is being copied. Its rests do no harm after a test that passed.

    With `@pytest.mark.all_lanes` three others flow beside it: each delivery, with and without a handler.
    """
    with ExitStack() as ends:
        if request.node.get_closest_marker("all_lanes"):
            first = {"rate": AMONG_OTHERS}
            flow = start_four_flows(shared.site, fleet, topic, first=first, others=FEW, ends=ends)
        else:
            flow = Flow(shared.site, fleet, topic)
            ends.callback(flow.close)
            flow.start()
        failed = request.session.testsfailed
        yield flow
        if request.session.testsfailed == failed:
            flow.delete()
            shared.is_sound()
