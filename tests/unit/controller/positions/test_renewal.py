"""Renewal of positions without an owner, against an in-memory store."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import cast

import pytest

from ureplicator_common.kafka import (
    ClusterUnavailable,
    PartitionUnavailable,
    Position,
    PositionOrError,
)
from ureplicator_common.kafka.client import ClusterClient
from ureplicator_common.kafka.positions import PositionStore, TargetPartition
from ureplicator_common.model import Partition, Route
from ureplicator_common.znodes.paths import Paths
from ureplicator_controller.core.positions.orphaned import OrphanedPosition
from ureplicator_controller.engines.position_renewal import (
    INTERVAL_S,
    RETRY_INTERVAL_S,
    PositionRenewer,
    RemainsRemover,
    Renewal,
    renew,
)
from ureplicator_testkit.control.memory_coordination import MemoryCoordination, MemoryStore

FIRST, SECOND = Route("a", "b"), Route("a", "c")


class TwinStore(PositionStore):
    """Store with one position that records commits."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.committed: dict[TargetPartition, Position] = {}

    def initialise(self) -> None:
        if self.error is not None:
            raise self.error

    def fence(self, transactional_ids: Sequence[str]) -> None:
        pass

    def read(
        self, wanted: Mapping[str, Sequence[int]]
    ) -> Mapping[TargetPartition, PositionOrError]:
        keys = [(topic, number) for topic in wanted for number in wanted[topic]]
        refused = PartitionUnavailable("TOPIC_AUTHORIZATION_FAILED")
        return {key: refused if key[0] == "hidden" else Position(5) for key in keys}

    def commit(
        self,
        positions: Mapping[TargetPartition, Position],
        *,
        optional: Collection[TargetPartition] = (),
    ) -> dict[TargetPartition, str]:
        assert not optional
        self.committed.update(positions)
        return {}


def renewer(first: TwinStore, second: TwinStore, *, leads: bool = True) -> PositionRenewer:
    client = cast(ClusterClient, None)
    return PositionRenewer(
        renewals={FIRST: Renewal(FIRST, first, client), SECOND: Renewal(SECOND, second, client)},
        orphaned=lambda route: {Partition(route, "t", 0): OrphanedPosition("t")},
        remains=RemainsRemover(
            coordination=MemoryCoordination(MemoryStore()),
            paths=Paths("f"),
            seen=lambda: None,
            proof=lambda: None,
        ),
        leads=lambda: leads,
    )


@pytest.mark.parametrize("error", [ClusterUnavailable("no broker responds"), ValueError("what?")])
def test_failing_route_does_not_stop_others_and_is_retried_sooner(error: Exception) -> None:
    second = TwinStore()
    assert renewer(TwinStore(error), second).run_once() == RETRY_INTERVAL_S
    assert second.committed == {("t", 0): Position(5)}


def test_a_position_that_is_not_shown_keeps_no_other_from_renewal(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = TwinStore()
    orphaned = {Partition(FIRST, name, 0): OrphanedPosition(name) for name in ("hidden", "t")}
    assert renew(Renewal(FIRST, store, cast(ClusterClient, None)), lambda route: orphaned) == 1
    assert store.committed == {("t", 0): Position(5)}
    assert "{('hidden', 0): 'TOPIC_AUTHORIZATION_FAILED'}" in caplog.text


def test_nothing_is_renewed_without_leadership() -> None:
    store = TwinStore()
    assert renewer(store, store, leads=False).run_once() == INTERVAL_S
    assert not store.committed
