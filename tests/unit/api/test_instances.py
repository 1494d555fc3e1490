"""`GET /instances`: texts that are kept are those that would be made anew, and they match their schema."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest

from ureplicator_common.model import WorkerId
from ureplicator_controller.api.http.models.instances import InstanceList
from ureplicator_controller.api.services import instances as encoded_module
from ureplicator_controller.api.services.fleet_cache import FleetState
from ureplicator_controller.api.services.instances import EncodedInstances, known_workers
from ureplicator_controller.core.state.external_view import external_view
from ureplicator_controller.core.state.snapshot import Snapshot
from ureplicator_controller.core.state.topic_tallies import topic_tallies
from ureplicator_testkit.control.fleet import ControlFleet, settled_fleet, shake

B = WorkerId("b")


def body_of(encoded: EncodedInstances, seen: Snapshot) -> bytes:
    view = external_view(seen)
    state = FleetState(snapshot=seen, view=view, leader=None, controllers={}, nodes={})
    return encoded.body(state, topic_tallies(seen, view), known_workers(seen))


@pytest.mark.parametrize("seed", range(10))
def test_kept_texts_are_those_of_the_present_state(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311  # to be replayed, not to be secret
    fleet, kept = settled_fleet(), EncodedInstances()
    for _ in range(40):
        shake(fleet, chance)
        seen = fleet.snapshot()
        body = body_of(kept, seen)
        assert body == body_of(EncodedInstances(), seen)
        shown = InstanceList.model_validate_json(body, strict=True)
        assert set(shown.instances) == set(seen.sessions)
        held = sum(worker.heldPartitions for worker in shown.workers.values())
        assert held == sum(len(holders) for holders in external_view(seen).values())


def test_only_workers_that_changed_are_described_again(monkeypatch: pytest.MonkeyPatch) -> None:
    described: list[str] = []
    details = encoded_module._details

    def counted(seen: Snapshot, worker: str, *rest: object) -> object:
        described.append(worker)
        return details(seen, worker, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(encoded_module, "_details", counted)
    kept, seen = EncodedInstances(), settled_fleet().snapshot()
    body_of(kept, seen)
    assert described == ["a", "b"]
    known = {**seen.known, B: replace(seen.known[B], version=9)}
    body = body_of(kept, replace(seen, known=known))
    assert described == ["a", "b", "b"]
    assert list(json.loads(body)) == ["instances", "blacklisted", "allInstances", "workers"]


def test_names_that_are_not_plain_are_quoted() -> None:
    fleet = ControlFleet()
    fleet.worker('a"b')
    shown = json.loads(body_of(EncodedInstances(), fleet.snapshot()))
    assert list(shown["workers"]) == ['a"b']


def test_reasons_that_are_not_plain_are_quoted() -> None:
    seen, reason = settled_fleet().snapshot(), 'it said "no"\n\\ \u202e'
    stored = seen.current[B]
    entries = {
        partition: replace(entry, reason=reason)
        for partition, entry in stored.value.entries.items()
    }
    told = replace(stored, value=replace(stored.value, entries=entries))
    shown = json.loads(
        body_of(EncodedInstances(), replace(seen, current={**seen.current, B: told}))
    )
    rows = shown["workers"]["b"]["partitions"]
    assert rows
    assert {row["reason"] for row in rows} == {reason}
