"""Fetching goes on while a transaction is sealed and committed; only sending waits."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ureplicator_testkit.copier.ledger_fleet import put
from ureplicator_testkit.copier.transaction_fleet import PROTOCOLS, TransactionFleet
from ureplicator_worker.copier.messages import Commit
from ureplicator_worker.copier.record.partition import RecordPartition

KEY = ("t", 0)


@pytest.fixture(params=PROTOCOLS, ids=[protocol.name for protocol in PROTOCOLS])
def fleet(request: pytest.FixtureRequest) -> Iterator[TransactionFleet]:
    """A transaction that is sealed, and whose commit has not begun. At the end everything is copied."""
    fleet = TransactionFleet(request.param, "w1")
    fleet.give(0, "w1")
    put(fleet, 0, 3)
    fleet.run_until_copied()
    ownership = fleet.workers["w1"].ownership
    ownership.hold = {Commit}
    put(fleet, 0, 3)
    while not ownership.held_back:
        fleet.turn()
    yield fleet
    ownership.let_pass()
    fleet.run_until_copied()
    assert len(fleet.committed(0)) == fleet.source.logs[KEY].end
    fleet.close()


def test_fetching_goes_on_while_a_transaction_is_committed(fleet: TransactionFleet) -> None:
    line = fleet.workers["w1"]
    (raw,) = line.lane._partitions.values()
    assert isinstance(raw, RecordPartition)
    taken = len(fleet.target.logs[KEY].taken)
    for _ in range(5):
        put(fleet, 0, 20, size=100)
        fleet.turns(20)
        assert raw.fetch.offset == fleet.source.logs[KEY].end
    assert raw.window.queued_bytes >= 100 * 100
    assert len(fleet.target.logs[KEY].taken) == taken
    assert len(line.ownership.held_back) == 1
