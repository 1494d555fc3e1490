"""Outputs of a handler to three partitions, exactly once, by workers that take over from each other.

Random faults of brokers, coordinators, workers and of the handler's process. At every moment the committed
records of all three are those of the source up to the stored position, once and in order.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ureplicator_common.kafka.transactions.producers import TransactionProtocol
from ureplicator_testkit.copier.transaction_fleet import HANDLED, PROTOCOLS
from ureplicator_testkit.exactly_once.history import play


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=[member.name for member in PROTOCOLS])
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 1 << 32))
def test_outputs_and_positions_are_the_same_at_every_moment(
    protocol: TransactionProtocol, seed: int
) -> None:
    play(Random(seed), protocol, HANDLED)  # noqa: S311  # repeatable
