"""Servers and one fleet that fault tests may break, shared by all of them.

Starting three Spark drivers takes longer than most faults, so the fleet (two controllers, three
workers) lives for the whole run, and every test leaves it healed. After a test that failed, the next
one gets a new fleet. A module sets the delays of its controllers with `DELAYS`.

| fault                                                              | module                |
|--------------------------------------------------------------------|-----------------------|
| a copier or a JVM is killed; a worker, the leader frozen for a     |                       |
| moment; a session expires                                          | test_short_faults     |
| a worker killed, frozen for long, hanging; a fleet of one          | test_long_faults      |
| the leader frozen for long, or killed in the middle of its plans   | test_long_faults      |
| Kafka killed; ZooKeeper without one server, without its quorum     | test_servers_go_away  |
| a worker or the leader cut off from ZooKeeper alone                | test_bad_networks     |
| a worker cut off from a cluster, each way; connections cut; slow   | test_bad_networks     |
| requests that arrive when their sender has been replaced           | test_bad_networks     |
| a topic that is grown, or recreated                                | test_topics_change    |
| two faults at once, drawn from a seed                              | test_two_faults       |
| two versions in one fleet, workers that stop cleanly and are back; |                       |
| a clock that jumps an hour                                         | test_mixed_versions   |
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

HERE = Path(__file__).parent
FEW: dict[str, int] = {"partitions": 3, "rate": 80}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Modules with servers of their own come first, since the shared fleet takes a good part of a processor
    even while it waits. The others are in the order of their delays: other delays restart its controllers."""
    mine = [place for place, item in enumerate(items) if item.path.is_relative_to(HERE)]
    ordered = sorted((items[place] for place in mine), key=_turn, reverse=True)
    for place, item in zip(mine, ordered, strict=True):
        items[place] = item


def _turn(item: pytest.Item) -> tuple[bool, float, int]:
    """Turn of a module. Of two that agree in the first delay the one with more of them comes first: they suit
    both."""
    assert isinstance(item, pytest.Function)
    delays: dict[str, float] = getattr(item.module, "DELAYS", {})
    return "shared" not in item.fixturenames, delays.get("rebalance_delay_s", 0), len(delays)


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
    To begin a flow and to judge it costs more than most faults, so those that promise the same share one.
    """
    with ExitStack() as ends:
        if request.node.get_closest_marker("all_lanes"):
            flow = start_four_flows(shared.site, fleet, topic, first={}, others=FEW, ends=ends)
        else:
            flow = Flow(shared.site, fleet, topic)
            ends.callback(flow.close)
            flow.start()
        failed = request.session.testsfailed
        yield flow
        if request.session.testsfailed == failed:
            flow.delete()
            shared.is_sound()
