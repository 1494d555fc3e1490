"""State that a control loop keeps from one snapshot of the fleet to the next."""

from __future__ import annotations

from typing import Any

import pytest

from ureplicator_common.coordination import Set
from ureplicator_common.model import TopicKey
from ureplicator_common.znode_contents import TopicIntent
from ureplicator_common.znodes.topics import decode_intent, encode_intent
from ureplicator_controller.core.state import fleet_index as fleet_index_module
from ureplicator_controller.core.state import snapshot as snapshot_module
from ureplicator_controller.core.state.fleet_index import FleetIndexer, Owners
from ureplicator_controller.core.state.snapshot import Snapshot
from ureplicator_controller.engines.control_loop import RETRY_DELAYS_S
from ureplicator_testkit.control.manual_controllers import PATHS, ROUTE, ControllerFleet


@pytest.fixture
def fleet() -> ControllerFleet:
    return ControllerFleet()


def test_a_standby_has_decoded_what_it_needs_as_the_leader(
    fleet: ControllerFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet.worker("a")
    fleet.topic(2, "old")
    fleet.one.run()
    fleet.two.run()
    decoded: list[bytes] = []

    def counted(data: bytes) -> TopicIntent:
        decoded.append(data)
        return decode_intent(data)

    monkeypatch.setattr(snapshot_module, "decode_intent", counted)
    fleet.topic(1, "new")
    fleet.one.client.expire()
    fleet.two.run()
    assert fleet.two.leads
    assert len(decoded) == 1, "only what is new"
    assert len(fleet.assignment_of("a").entries) == 3


def test_a_cycle_that_fails_leaves_no_half_an_index(
    fleet: ControllerFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet.worker("a")
    names = ("t", "u", "v")
    for name in names:
        fleet.topic(2, name)
    fleet.one.run()

    def change(blacklisted: frozenset[int] = frozenset()) -> None:
        intent = TopicIntent(
            2, 2, blacklisted=blacklisted, had_position=frozenset({0, 1}), target_topic="orders"
        )
        paths = [PATHS.topic(TopicKey(ROUTE, name)) for name in names]
        fleet.client.transact([Set(path, encode_intent(intent), -1) for path in paths])

    change()
    fleet.one.run()
    asked: list[TopicKey] = []
    owners_at_rest = fleet_index_module._owners_at_rest

    def fails_once(seen: Snapshot, key: TopicKey, *topic: Any) -> Owners | None:
        asked.append(key)
        if len(asked) == 2:
            raise RuntimeError("a mistake")
        return owners_at_rest(seen, key, *topic)

    monkeypatch.setattr(fleet_index_module, "_owners_at_rest", fails_once)
    change(blacklisted=frozenset({0}))
    fleet.one.run(1)
    assert fleet.one.figure("cycles_total", outcome="failed") == 1
    fleet.clock.advance(RETRY_DELAYS_S[0])
    fleet.one.run()
    seen = fleet.one.observer.latest
    assert seen is not None
    assert fleet.one.loop._indexer.of(seen).counts == FleetIndexer().of(seen).counts
