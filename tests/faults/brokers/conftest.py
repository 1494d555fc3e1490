"""A source and a target of three brokers each, and a fleet of one worker with two slots and two routes.

Shared by all tests of this folder; each begins with every broker healed.

| fault                                                            | module               |
|------------------------------------------------------------------|----------------------|
| one broker of three killed or frozen, in each of its roles       | test_brokers         |
| every broker of both clusters restarted in turn                  | test_brokers         |
| leaders changed, brokers restarted and killed, a coordinator     |                      |
| killed in the middle of transactions; full disks;                |                      |
| all deliveries and lanes                                         | test_all_lanes       |
| an unclean election                                              | test_elections       |
| too few replicas in sync; replicas moved to a broker that is new | test_replicas        |
"""

import uuid
from collections.abc import Iterator

import pytest

from ureplicator_common.model import Route, WorkerId, position_group, transactional_ids
from ureplicator_testkit.fleet.real_fleet import FORTH, Fleet
from ureplicator_testkit.records.flow import Flow
from ureplicator_testkit.records.watched import WatchedTopic
from ureplicator_testkit.servers.replicas import name_coordinated_by
from ureplicator_testkit.servers.replicated import ReplicatedServers

BACK = Route("target", "source")
PREFIXES = {FORTH: "copy-", BACK: "back-"}
WORKER, SLOTS = "w1", 2
FIRST_SEED, GROUP_COORDINATOR, TRANSACTION_COORDINATOR = 1, 2, 3
"""Roles of the target's brokers; each leads a third of the partitions, too."""


@pytest.fixture(scope="package")
def site() -> Iterator[ReplicatedServers]:
    servers = ReplicatedServers()
    try:
        yield servers.start()
    finally:
        servers.stop()


@pytest.fixture(scope="package")
def running(site: ReplicatedServers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    name = name_with_roles(site)
    fleet = Fleet(
        name=name,
        folder=tmp_path_factory.mktemp(name),
        zookeeper=site.zookeeper.hosts,
        source=site.source.bootstrap,
        target=site.target.bootstrap,
        routes=[
            {"source": route.source, "target": route.target, "naming": {"prefix": prefix}}
            for route, prefix in PREFIXES.items()
        ],
        worker={"slots": SLOTS},
    )
    try:
        yield fleet.start()
    finally:
        fleet.kill()


def name_with_roles(site: ReplicatedServers) -> str:
    site.heal()
    return name_coordinated_by(
        site.target,
        f"brokers-{uuid.uuid4().hex[:8]}",
        group=lambda name: position_group(fleet=name, route=FORTH),
        group_broker=GROUP_COORDINATOR,
        id=lambda name: transactional_ids(
            fleet=name, route=FORTH, worker=WorkerId(WORKER), slots=1
        )[0],
        id_broker=TRANSACTION_COORDINATOR,
    )


@pytest.fixture
def fleet(site: ReplicatedServers, running: Fleet) -> Fleet:
    site.heal()
    return running


@pytest.fixture
def flows(site: ReplicatedServers, fleet: Fleet, topic: str) -> Iterator[list[Flow]]:
    """A topic of each route, with records of all kinds."""
    flows = [
        Flow(site, fleet, f"{topic}-{route}", partitions=3, rate=200, route=route, prefix=prefix)
        for route, prefix in PREFIXES.items()
    ]
    try:
        for flow in flows:
            flow.start()
        yield flows
    finally:
        for flow in flows:
            flow.close()


@pytest.fixture
def watched(site: ReplicatedServers, fleet: Fleet, topic: str) -> Iterator[WatchedTopic]:
    watched = WatchedTopic(site, fleet, topic, worker=WORKER, prefix=PREFIXES[FORTH])
    try:
        yield watched.start()
    finally:
        watched.stop()
