"""Commits whose outcome nobody has said: what the offset map then holds of what they committed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from ureplicator_common.kafka.transactions.producers import TransactionProtocol
from ureplicator_common.offset_map.route_maps import RouteMaps
from ureplicator_testkit.copier.ledger_fleet import put
from ureplicator_testkit.copier.transaction_fleet import (
    PROTOCOLS,
    TRANSACTIONAL,
    TransactionFleet,
    committed,
)
from ureplicator_testkit.kafka.map_log import MemoryMapLog
from ureplicator_worker.copier.ownership.map_commits import MapCommits

TOPIC_PARTITION = ("t", 0)
SETTINGS = replace(TRANSACTIONAL, offset_map=True)


@pytest.fixture(params=PROTOCOLS)
def fleet(request: pytest.FixtureRequest) -> Iterator[TransactionFleet]:
    protocol: TransactionProtocol = request.param
    fleet = TransactionFleet(protocol, "w1", settings=SETTINGS)
    yield fleet
    fleet.close()


@pytest.mark.parametrize("when", ["before", "after"])
def test_the_map_has_what_a_commit_of_unknown_outcome_committed(
    fleet: TransactionFleet, when: str
) -> None:
    """A group that goes on by the map misses no record, whether the commit took effect or not."""
    log = MemoryMapLog()
    fleet.workers["w1"].ownership._maps = MapCommits(log)
    partition = fleet.give(0, "w1")
    put(fleet, 0, 10)
    fleet.run_until_copied()
    fleet.ledger.fail_next("commit", when)
    for _ in range(3):
        put(fleet, 0, 10)
        fleet.run_until_copied()
        fleet.turns(20, skip_s=0.1)
    maps = RouteMaps()
    maps.add(log.rows)
    stored = fleet.ledger.read(TOPIC_PARTITION)
    view = maps.view(partition, stored)
    source = {record.value: record.offset for record in committed(fleet.source, TOPIC_PARTITION)}
    there = {record.value: record.offset for record in committed(fleet.target, TOPIC_PARTITION)}
    assert there.keys() == source.keys()
    assert {value: view.forward(offset) for value, offset in source.items()} == there
