"""Two versions in one fleet: a rolling upgrade, and the way back.

The test ends with both logs, and all commits, read from the beginning (`Flow.judge`).
"""

from collections.abc import Mapping
from pathlib import Path

import pytest

from ureplicator_common._version import __version__
from ureplicator_testkit.fleet import later_version
from ureplicator_testkit.fleet.real_fleet import Fleet
from ureplicator_testkit.records.flow import Flow
from ureplicator_testkit.servers.processes import eventually

DELAYS = {"rebalance_delay_s": 120}
UPGRADED = ("w1", "w2")


@pytest.mark.all_lanes
def test_a_rolling_upgrade_and_the_way_back_move_and_repeat_nothing(
    fleet: Fleet, flow: Flow, tmp_path: Path
) -> None:
    """The later version leads, too, and what it wrote is read after the way back."""
    moves = fleet.moves(flow.topic)
    former = fleet.leader()
    for env, version in (
        (later_version.install(tmp_path), later_version.VERSION),
        (None, __version__),
    ):
        replace(fleet, env)
        assert versions(fleet) == {"w1": version, "w2": version, "w3": __version__}
        flow.wait_owned_by(set(fleet.workers), 40)
        flow.assert_copying()
        former = lead_by_another(fleet, former, env)
    assert fleet.moves(flow.topic) == moves
    flow.judge()


def replace(fleet: Fleet, env: Mapping[str, str] | None) -> None:
    """Stop some workers cleanly, and start them again in this version."""
    for id in UPGRADED:
        assert fleet.workers[id].terminate() == 0
        fleet.start_worker(id, env=env)
    fleet.wait_workers(*UPGRADED)


def lead_by_another(fleet: Fleet, former: str, env: Mapping[str, str] | None) -> str:
    """Upgrade the controller that follows, and have it lead."""
    successor = fleet.follower_of(former)
    assert fleet.controllers[successor].terminate() == 0
    fleet.start_controller(successor, env=env)
    assert fleet.controllers[former].terminate() == 0
    fleet.start_controller(former)
    return eventually(
        lambda: fleet.leader() if fleet.leader() == successor else "", 20, "the other one leads"
    )


def versions(fleet: Fleet) -> dict[str, str]:
    shown = fleet.rest("GET", "/instances")["workers"]
    return {id: shown[id]["version"] for id in fleet.workers}
