"""Fleets between the shared servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from ureplicator_testkit.fleet.real_fleet import Fleet
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.zookeeper import ZooKeeperServer

MakeFleet = Callable[..., Fleet]


@pytest.fixture(scope="module")
def make_fleet(
    zookeeper: ZooKeeperServer,
    source_cluster: KafkaCluster,
    target_cluster: KafkaCluster,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[MakeFleet]:
    """`make_fleet(name, **options of Fleet)`, not started yet. Killed with the last test of the module."""
    with ExitStack() as made:

        def make(name: str, **options: Any) -> Fleet:
            fleet = Fleet(
                name=name,
                folder=tmp_path_factory.mktemp(name),
                zookeeper=zookeeper.hosts,
                source=source_cluster.bootstrap,
                target=target_cluster.bootstrap,
                **options,
            )
            made.callback(fleet.kill)
            return fleet

        yield make
