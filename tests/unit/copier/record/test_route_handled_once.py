"""Outputs of a handler to three partitions, exactly once, by workers that take over from each other.

Random faults of brokers, coordinators, workers and of the handler's process. At every moment the committed
records of all three are those of the source up to the stored position, once and in order.
"""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ureplicator_common.kafka.errors import ErrorCode
from ureplicator_common.kafka.positions import TransactionProtocol
from ureplicator_testkit.copier.handler_process import processes
from ureplicator_testkit.copier.ledger_fleet import LedgerFleet, put
from ureplicator_testkit.copier.transaction_fleet import (
    HANDLED,
    PARTITIONS,
    PROTOCOLS,
    TransactionFleet,
)
from ureplicator_testkit.kafka.transactions import EPOCHS

WORKERS = ("w1", "w2", "w3")
FAULTS = (
    *("cut", "refuse", "belated", "move leader", "ledger", "ledger", "none", "protocol"),
    *("move", "move", "freeze", "freeze", "thaw", "kill", "lose", "lose"),
)
REQUESTS = ("initialise", "fence", "read", "join", "commit", "commit")
CODES = (
    ErrorCode.NONE,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.TRANSACTION_ABORTABLE,
)


def harm(fleet: TransactionFleet, fault: str, data: st.DataObject) -> None:
    worker = data.draw(st.sampled_from(WORKERS))
    number = data.draw(st.integers(0, PARTITIONS - 1))
    kafka = data.draw(st.sampled_from([fleet.source, fleet.target]))
    codes = data.draw(st.lists(st.sampled_from(CODES), min_size=1, max_size=4))
    match fault:
        case "cut":
            kafka.cut(1)
        case "refuse":
            fleet.target.refuse["t", number] = deque(map(int, codes))
        case "belated":
            fleet.target.belated["t", number] = deque(map(int, codes))
        case "move leader":
            kafka.move(("t", number), 1)
        case "ledger":
            name = data.draw(st.sampled_from(REQUESTS))
            fleet.ledger.fail_next(name, data.draw(st.sampled_from(["before", "after"])))
        case "protocol":
            fleet.ledger.protocol = data.draw(st.sampled_from(PROTOCOLS))
        case "move":
            fleet.give(number, worker)
        case "freeze":
            fleet.workers[worker].frozen = True
        case "thaw":
            fleet.workers[worker].frozen = False
        case "kill":
            fleet.kill(worker)
        case "lose":
            for process in processes(fleet.workers[worker].lane):
                process.lose()


def heal(fleet: LedgerFleet) -> None:
    for worker in fleet.workers.values():
        worker.frozen = False
    for kafka in (fleet.source, fleet.target):
        kafka.refuse.clear()
        kafka.belated.clear()


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=[each.name for each in PROTOCOLS])
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_outputs_and_positions_are_the_same_at_every_moment(
    protocol: TransactionProtocol, data: st.DataObject
) -> None:
    fleet = TransactionFleet(protocol, *WORKERS, settings=HANDLED)
    fleet.ledger.epochs_each = data.draw(st.sampled_from([2, 5, EPOCHS]))
    try:
        for number in range(PARTITIONS):
            fleet.give(number, WORKERS[number])
        for _ in range(data.draw(st.integers(1, 12))):
            put(fleet, data.draw(st.integers(0, PARTITIONS - 1)), data.draw(st.integers(0, 8)))
            harm(fleet, data.draw(st.sampled_from(FAULTS)), data)
            skip_s = data.draw(st.sampled_from([0.01, 0.1, 0.5]))
            fleet.turns(data.draw(st.integers(0, 25)), skip_s=skip_s)
        heal(fleet)
        fleet.run_until_copied()
        fleet.expire_transactions()
        fleet.run_until_copied()
        fleet.check_whole()
    finally:
        fleet.close()
