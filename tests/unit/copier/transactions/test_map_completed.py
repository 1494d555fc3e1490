"""Rows that the offset map could not take with a commit are there when the partition moves on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from ureplicator_common.model import Delivery, Partition, RouteSettings
from ureplicator_common.offset_map.route_maps import RouteMaps
from ureplicator_testkit.copier.ledger_fleet import LedgerFleet, put
from ureplicator_testkit.copier.line import ROUTE
from ureplicator_testkit.copier.transaction_fleet import PROTOCOLS, TRANSACTIONAL, TransactionFleet
from ureplicator_testkit.kafka.map_log import MemoryMapLog
from ureplicator_testkit.kafka.memory_kafka import MemoryKafka
from ureplicator_worker.copier.at_least_once import UNMAPPED_S
from ureplicator_worker.copier.ownership.map_commits import MapCommits

P0 = Partition(ROUTE, "t", 0)


def at_least_once() -> LedgerFleet:
    settings = RouteSettings(delivery=Delivery.AT_LEAST_ONCE, offset_map=True)
    ends = (MemoryKafka("A", {"t": 1}), MemoryKafka("B", {"t": 1}))
    return LedgerFleet(*ends, "w1", "w2", settings=settings)


def exactly_once() -> TransactionFleet:
    settings = replace(TRANSACTIONAL, offset_map=True)
    return TransactionFleet(PROTOCOLS[0], "w1", "w2", settings=settings)


@pytest.mark.parametrize("new", [at_least_once, exactly_once])
def test_a_quiet_partition_moves_with_its_whole_map(new: Callable[[], LedgerFleet]) -> None:
    log, fleet = MemoryMapLog(), new()
    for worker in fleet.workers.values():
        worker.ownership._maps = MapCommits(log)
    fleet.give(0, "w1")
    put(fleet, 0, 2)
    fleet.run_until_copied()
    fleet.turns(10)
    log.refuse()
    put(fleet, 0, 5)
    fleet.run_until_copied()
    log.failure = None
    fleet.turns(5, skip_s=UNMAPPED_S)
    fleet.give(0, "w2")
    fleet.run_until_copied()
    fleet.turns(10)
    maps = RouteMaps(frozenset([P0]))
    maps.add(log.rows)
    view = maps.partitions[P0].view()
    fleet.close()
    places = [view.forward(offset) for offset in range(7)]
    assert len({*places}) == len(places), "a record that was left out has the place of another"
