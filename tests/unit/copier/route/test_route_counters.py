"""Counters and latency where records are delivered in transactions: what readers see, once."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace

import pytest

from ureplicator_common.kafka.errors import ErrorCode
from ureplicator_common.model import Partition
from ureplicator_testkit.copier.ledger_fleet import put
from ureplicator_testkit.copier.line import ROUTE
from ureplicator_testkit.copier.transaction_fleet import PROTOCOLS, TRANSACTIONAL, TransactionFleet
from ureplicator_worker.copier.latency import LatencyHistogram
from ureplicator_worker.lifeline.messages import PartitionReport

P0 = Partition(ROUTE, "t", 0)


@pytest.fixture(params=PROTOCOLS, ids=[protocol.name for protocol in PROTOCOLS])
def fleet(request: pytest.FixtureRequest) -> Iterator[TransactionFleet]:
    fleet = TransactionFleet(request.param, "w1")
    fleet.give(0, "w1")
    put(fleet, 0, 3)
    fleet.run_until_copied()
    yield fleet
    fleet.close()


def report(fleet: TransactionFleet) -> PartitionReport:
    return fleet.workers["w1"].copier.report()[P0]


def latency(fleet: TransactionFleet) -> LatencyHistogram:
    return fleet.workers["w1"].lane.latency.of_records


def test_acknowledged_records_count_with_their_commit(fleet: TransactionFleet) -> None:
    """The latency is the one up to the commit: before, no reader sees them."""
    fleet.turns(2)
    batches = sum(latency(fleet).counts)
    while report(fleet).position < 8:
        assert report(fleet).records == 3
        assert sum(latency(fleet).counts) == batches
        if fleet.source.logs["t", 0].end == 3:
            put(fleet, 0, 5)
        fleet.turn(skip_s=0.001)
    assert report(fleet).records == 3
    fleet.run_until_copied()
    fleet.turn()
    assert report(fleet).records == 8
    assert sum(latency(fleet).counts) > batches


def test_what_is_aborted_and_sent_again_counts_once(fleet: TransactionFleet) -> None:
    put(fleet, 0, 5)
    fleet.ledger.fail_next("commit", "before")
    batches = sum(latency(fleet).counts)
    fleet.run_until_copied()
    fleet.turn()
    assert fleet.ledger.done.count("initialise") == 2
    assert report(fleet).records == 8
    assert report(fleet).bytes == sum(map(len, fleet.target.logs["t", 0].committed()))
    assert sum(latency(fleet).counts) - batches <= 5


def test_skipped_records_count_once(fleet: TransactionFleet) -> None:
    fleet.settings = replace(TRANSACTIONAL, abort_on_send_failure=False)
    fleet.kill("w1")
    fleet.checks = False
    fleet.run_until_copied()
    fleet.target.refuse["t", 0] = deque([int(ErrorCode.INVALID_RECORD)] * 2)
    fleet.ledger.fail_next("commit", "before")
    put(fleet, 0, 1)
    fleet.run_until_copied()
    fleet.turn()
    assert report(fleet).skipped == 1
