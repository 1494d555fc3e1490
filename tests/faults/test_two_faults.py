"""Two faults at once, drawn from a seed, in both deliveries and both lanes.

Each test ends with both logs, and all commits, read from the beginning (`Flow.judge`). One seed runs with all
tests. Others:

    UREPLICATOR_FAULT_SEEDS="5 6 7" scripts/test tests/faults/test_two_faults.py -s
"""

import os
import random

import pytest

from ureplicator_testkit.fleet.nemesis import Nemesis
from ureplicator_testkit.fleet.real_fleet import SESSION_TIMEOUT_S, Fleet
from ureplicator_testkit.histories.events import Fault
from ureplicator_testkit.records.flow import Flow
from ureplicator_testkit.servers.network import BreakableServers

DELAYS = {"rebalance_delay_s": 0, "handover_timeout_s": 8}
SEEDS = [int(word) for word in os.environ.get("UREPLICATOR_FAULT_SEEDS", "1").split()]
LONGEST_S = 2.5 * SESSION_TIMEOUT_S
RECOVERY_S = 40


@pytest.mark.all_lanes
@pytest.mark.parametrize("seed", SEEDS)
def test_two_faults_at_once_lose_nothing(
    site: BreakableServers, fleet: Fleet, flow: Flow, seed: int
) -> None:
    dice = random.Random(seed)  # noqa: S311
    nemesis = Nemesis(fleet, site, dice, longest_s=LONGEST_S)
    print(f"seed {seed}: {nemesis}")
    flow.history.add(Fault(str(nemesis)))
    nemesis.begin()
    fleet.wait_seconds(nemesis.lasts_s)
    nemesis.heal()
    flow.wait_owned_by(set(fleet.workers), RECOVERY_S)
    flow.assert_copying(deadline_s=RECOVERY_S)
    flow.judge(nemesis.repeats())
