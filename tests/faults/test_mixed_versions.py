"""Two versions in one fleet, and wall clocks that jump: a rolling upgrade, and the way back.

The upgraded leader and the upgraded worker have wrong clocks, on which no guarantee of docs/architecture.md
depends. Each worker that is replaced stops cleanly. The test ends with both logs, and
all commits, read from the beginning (`Flow.judge`).
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ureplicator_common._version import __version__
from ureplicator_testkit.fleet import later_version
from ureplicator_testkit.fleet.real_fleet import SESSION_TIMEOUT_S, Fleet
from ureplicator_testkit.records.flow import Flow
from ureplicator_testkit.servers import skewed
from ureplicator_testkit.servers.processes import eventually

DELAYS = {"rebalance_delay_s": 120}
HOUR_S = 3600


@pytest.mark.all_lanes
def test_a_rolling_upgrade_and_the_way_back_move_and_repeat_nothing(
    fleet: Fleet, flow: Flow, tmp_path: Path
) -> None:
    """The later version leads, too, and what it wrote is read after the way back. Its clocks jump by an hour
    while the rebalance delay of a worker runs."""
    moves, owners = fleet.moves(flow.topic), flow.owners()
    former = fleet.leader()
    wrong = tmp_path / "wrong"
    set_wrong(wrong, 0)
    later = with_clock(later_version.install(tmp_path / "later"), wrong)
    stop(fleet, "w1")
    fleet.start_worker("w1", env=later)
    successor = fleet.follower_of(former)
    replace(fleet, successor, later)
    replace(fleet, former)
    eventually(lambda: fleet.leader() == successor, 20, "the later version leads")
    fleet.wait_workers("w1")
    assert versions(fleet) == {"w1": later_version.VERSION, "w2": __version__, "w3": __version__}
    flow.wait_owned_by(set(fleet.workers), 40)
    flow.assert_copying()
    stop(fleet, "w2")
    for seconds in (-HOUR_S, HOUR_S):
        set_wrong(wrong, seconds)
        fleet.wait_seconds(SESSION_TIMEOUT_S + 1)
        flow.assert_copying(*(number for number, owner in owners.items() if owner != "w2"))
        assert fleet.leader() == successor
        assert fleet.moves(flow.topic) == moves
    stop(fleet, "w1")
    for id in ("w1", "w2"):
        fleet.start_worker(id)
    replace(fleet, successor)
    eventually(lambda: fleet.leader() == former, 20, "this version leads again")
    for id in ("w1", successor):
        assert abs(off_s(fleet, id) - HOUR_S) < HOUR_S / 10, "its clock was wrong"
    fleet.wait_workers("w1", "w2")
    assert set(versions(fleet).values()) == {__version__}
    flow.wait_owned_by(set(fleet.workers), 40)
    flow.assert_copying()
    assert flow.owners() == owners
    assert fleet.moves(flow.topic) == moves
    flow.judge()


def stop(fleet: Fleet, id: str) -> None:
    """Stop a worker cleanly."""
    assert fleet.workers[id].terminate() == 0
    fleet.workers[id].assert_tree_gone()


def with_clock(env: Mapping[str, str], file: Path) -> Mapping[str, str]:
    """This environment with a clock that is wrong by the offset in the file."""
    path = f"{next(iter(skewed.__path__))}:{env['PYTHONPATH']}"
    return {**env, "PYTHONPATH": path, "UREPLICATOR_TESTKIT_CLOCK": str(file)}


def set_wrong(file: Path, seconds: int) -> None:
    new = file.with_suffix(".new")
    new.write_text(str(seconds))
    new.replace(file)  # atomic: a reader sees the whole file


def off_s(fleet: Fleet, id: str) -> float:
    """Error of its clock, by the latest time in its log."""
    latest = max(re.findall(r"^\d{4}-\d\d-\d\dT\S+", fleet.log_of(id), re.M))
    return (datetime.fromisoformat(latest) - datetime.now(UTC)) / timedelta(seconds=1)


def replace(fleet: Fleet, controller: str, env: Mapping[str, str] | None = None) -> None:
    assert fleet.controllers[controller].terminate() == 0
    fleet.start_controller(controller, env=env)


def versions(fleet: Fleet) -> dict[str, str]:
    shown = fleet.rest("GET", "/instances")["workers"]
    return {id: shown[id]["version"] for id in fleet.workers}
