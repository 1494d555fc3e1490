"""Fleets that the bench measures are such as REST would have made."""

from __future__ import annotations

from ureplicator_bench.fleets import control


def test_each_topic_of_a_planned_fleet_has_a_target_of_its_own() -> None:
    fleet = control.settled(partitions=80, workers=4)
    targets = {key: stored.value.target_topic for key, stored in fleet.topics.items()}
    assert len(targets) == 10
    assert targets == {key: key.topic for key in targets}
