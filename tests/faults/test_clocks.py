"""Wall clocks that jump: no guarantee of docs/architecture.md depends on them.

The test ends with both logs, and all commits, read from the beginning (`Flow.judge`).
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

from ureplicator_testkit.fleet.real_fleet import SESSION_TIMEOUT_S, Fleet, with_path
from ureplicator_testkit.records.flow import Flow
from ureplicator_testkit.servers import skewed
from ureplicator_testkit.servers.processes import eventually

DELAYS = {"rebalance_delay_s": 120}
HOUR_S = 3600


def clock(file: Path) -> Mapping[str, str]:
    """The environment of a process whose clock is wrong by the offset in the file."""
    folder = Path(next(iter(skewed.__path__)))
    return {"PYTHONPATH": with_path(folder), "UREPLICATOR_TESTKIT_CLOCK": str(file)}


def set_wrong(file: Path, seconds: int) -> None:
    new = file.with_suffix(".new")
    new.write_text(str(seconds))
    new.replace(file)  # atomic: a reader sees the whole file


def off_s(fleet: Fleet, id: str) -> float:
    """Error of its clock, by the last line of its log."""
    last = fleet.log_of(id).splitlines()[-1]
    logged = datetime.fromisoformat(last.partition(" ")[0])
    return (logged - datetime.now(UTC)) / timedelta(seconds=1)


def test_a_clock_that_jumps_an_hour_moves_nothing(fleet: Fleet, flow: Flow, tmp_path: Path) -> None:
    """The clocks of the leader and of a worker; also while another worker's rebalance delay runs."""
    wrong = tmp_path / "wrong"
    set_wrong(wrong, 0)
    owners, moves = flow.owners(), fleet.moves(flow.topic)
    former = fleet.leader()
    leader = fleet.follower_of(former)
    for process in (fleet.controllers[leader], fleet.controllers[former], fleet.workers["w1"]):
        assert process.terminate() == 0
    fleet.start_worker("w1", env=clock(wrong))
    fleet.start_controller(leader, env=clock(wrong))
    eventually(lambda: fleet.leader() == leader, 20, "the controller with the wrong clock leads")
    fleet.start_controller(former)
    fleet.wait_workers("w1")
    flow.wait_owned_by(set(fleet.workers), 40)
    assert fleet.workers["w2"].terminate() == 0
    for seconds in (-HOUR_S, HOUR_S):
        set_wrong(wrong, seconds)
        fleet.wait_seconds(SESSION_TIMEOUT_S + 1)
        flow.assert_copying(*(number for number, owner in owners.items() if owner != "w2"))
        assert fleet.leader() == leader
        assert fleet.moves(flow.topic) == moves
    for process in (fleet.workers["w1"], fleet.controllers[leader]):
        assert process.terminate() == 0
    for id in ("w1", leader):
        assert abs(off_s(fleet, id) - HOUR_S) < HOUR_S / 10, "its clock was wrong"
    flow.heal()
    assert flow.owners() == owners
    assert fleet.moves(flow.topic) == moves
    flow.judge()
