"""Causes of changes of owners, for the metric."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from ureplicator_common.coordination import Set
from ureplicator_common.model import WorkerId
from ureplicator_common.znode_contents import Switches
from ureplicator_common.znodes.workers import encode_known_worker
from ureplicator_controller.core.planning.plan import plan
from ureplicator_controller.core.reporting.move_causes import MoveCause, move_causes
from ureplicator_testkit.control.fleet import ROUTE, ControlFleet, two_workers


def causes(fleet: ControlFleet) -> set[MoveCause]:
    """Causes in the plan that the next cycle would execute."""
    seen = fleet.observe()
    return set(move_causes(seen, plan(seen, fleet.now_s).steps))


def drain(fleet: ControlFleet) -> None:
    known = replace(fleet.snapshot().known[WorkerId("b")].value, draining=True)
    data = encode_known_worker(known)
    change = Set(fleet.paths.worker_known(WorkerId("b")), data, -1)
    fleet.store.apply(fleet.store.open_session(), [change])


def pause(fleet: ControlFleet) -> None:
    fleet.switch(Switches(paused_routes=frozenset({ROUTE})))


@pytest.mark.parametrize(
    ("happens", "cause"),
    [
        (lambda fleet: fleet.topic("other", 2), MoveCause.PLACED),
        (pause, MoveCause.EXCLUDED),
        (drain, MoveCause.DRAINED),
    ],
    ids=["new topic", "pause", "drain"],
)
def test_each_change_of_an_owner_has_a_cause(
    happens: Callable[[ControlFleet], object], cause: MoveCause
) -> None:
    fleet = two_workers(4)
    assert causes(fleet) == set()
    happens(fleet)
    assert causes(fleet) == {cause}
