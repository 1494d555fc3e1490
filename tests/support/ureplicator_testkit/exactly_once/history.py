"""One random history: records and faults in turns, then everything is healed and copied."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from random import Random

from ureplicator_common.kafka.transactions.producers import TransactionProtocol
from ureplicator_common.model import RouteSettings
from ureplicator_testkit.copier.fenced_fleet import FencedFleet
from ureplicator_testkit.copier.same_fleet import SameFleet
from ureplicator_testkit.copier.transaction_fleet import (
    PARTITIONS,
    PROTOCOLS,
    TRANSACTIONAL,
    TransactionFleet,
)
from ureplicator_testkit.exactly_once.faults import NODES, STEPS_EACH, WORKERS, Faults
from ureplicator_testkit.exactly_once.fenced_faults import FencedFaults, variant
from ureplicator_testkit.exactly_once.same_faults import SameFaults, far_from_zero
from ureplicator_testkit.kafka.transactions import EPOCHS

STEPS = 14
OLD_SHARE = 0.4
SKIPS_S = (0.01, 0.03, 0.1, 0.5, 2.0)


@contextmanager
def fleet_of(
    random: Random,
    protocol: TransactionProtocol | None = None,
    settings: RouteSettings = TRANSACTIONAL,
) -> Iterator[TransactionFleet]:
    """Workers, each with a partition or none."""
    protocol = protocol or random.choice(PROTOCOLS)
    if settings.is_fenced("t"):
        settings = variant(random, settings)
    kind: type[TransactionFleet] = TransactionFleet
    if settings.is_fenced("t"):
        kind = SameFleet if settings.has_same_offsets("t") else FencedFleet
    fleet = kind(protocol, *WORKERS, nodes=NODES, settings=settings)
    fleet.ledger.epochs_each = random.choice([2, 5, EPOCHS])
    try:
        if isinstance(fleet, FencedFleet) and random.random() < OLD_SHARE:
            fleet.age()
        for number in range(PARTITIONS):
            fleet.give(number, WORKERS[number])
        for worker in fleet.workers.values():
            worker.step_each = random.choice(STEPS_EACH[:3])
        begun = far_from_zero(fleet, random) if isinstance(fleet, SameFleet) else nullcontext()
        with begun:
            yield fleet
    finally:
        fleet.close()


def faults_of(fleet: TransactionFleet, random: Random) -> Faults:
    if isinstance(fleet, SameFleet):
        return SameFaults(fleet, random)
    return FencedFaults(fleet, random) if isinstance(fleet, FencedFleet) else Faults(fleet, random)


def play(
    random: Random,
    protocol: TransactionProtocol | None = None,
    settings: RouteSettings = TRANSACTIONAL,
) -> list[str]:
    """The faults that were done. Raises AssertionError."""
    with fleet_of(random, protocol, settings) as fleet:
        is_fenced = isinstance(fleet, FencedFleet)
        faults = faults_of(fleet, random)
        for _ in range(random.randint(1, STEPS)):
            faults.fill()
            faults.harm()
            fleet.turns(random.randint(0, 25), skip_s=random.choice(SKIPS_S))
        faults.heal()
        faults.end_source_transactions()
        fleet.run_until_copied()
        if not is_fenced:
            fleet.expire_transactions()
        fleet.run_until_copied()
        fleet.check_whole()
        return faults.done
