"""The external view is the same whether it is merged anew or from an earlier one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ureplicator_common.model import (
    OwnerEpoch,
    Partition,
    PartitionState,
    Route,
    SessionId,
    WorkerId,
)
from ureplicator_common.znode_contents import CurrentEntry, CurrentState
from ureplicator_controller.core.state.decoding import Stored
from ureplicator_controller.core.state.external_view import ExternalView, external_view
from ureplicator_controller.core.state.snapshot import Snapshot

ROUTE = Route("a", "b")
partitions = st.integers(0, 3).map(lambda number: Partition(ROUTE, "t", number))
entries = st.builds(
    CurrentEntry, st.sampled_from(PartitionState), st.integers(1, 2).map(OwnerEpoch)
)
sessions = st.integers(1, 2).map(SessionId)
reports = st.dictionaries(
    st.sampled_from([WorkerId("w1"), WorkerId("w2"), WorkerId("w3")]),
    st.tuples(st.dictionaries(partitions, entries), sessions, sessions),
)


def snapshot_of(
    found: dict[WorkerId, tuple[dict[Partition, CurrentEntry], SessionId, SessionId]],
    before: Snapshot | None,
) -> Snapshot:
    """Nodes that did not change are the same objects, as in a tree cache."""
    current = {}
    for worker, (reported, owner, _) in found.items():
        kept = before.current.get(worker) if before else None
        same = kept is not None and kept.owner == owner and kept.value.entries == reported
        current[worker] = kept if same and kept else Stored(CurrentState(1, reported), 0, 1, owner)
    live = {worker: session for worker, (_, _, session) in found.items()}
    return Snapshot("f", 1, current=current, sessions=live)


@given(st.lists(reports, min_size=1, max_size=6))
def test_a_view_that_goes_on_from_an_earlier_one_is_the_whole_view(
    history: list[dict[WorkerId, tuple[dict[Partition, CurrentEntry], SessionId, SessionId]]],
) -> None:
    before: tuple[Snapshot, ExternalView] | None = None
    for found in history:
        snapshot = snapshot_of(found, before[0] if before else None)
        kept = {partition: dict(of) for partition, of in before[1].items()} if before else {}
        view = external_view(snapshot, before)
        whole = external_view(snapshot)
        assert view == whole
        assert all([*view[partition]] == sorted(view[partition]) for partition in view), (
            "workers in order"
        )
        assert before is None or before[1] == kept, "the earlier view is as it was"
        before = (snapshot, view)


def test_only_a_worker_whose_report_differs_is_merged_again() -> None:
    one, two = (WorkerId(f"w{number}") for number in (1, 2))
    first, second = (Partition(ROUTE, "t", number) for number in (0, 1))
    entry = CurrentEntry(PartitionState.ONLINE, OwnerEpoch(1))
    live = {one: SessionId(1), two: SessionId(2)}
    of_one = Stored(CurrentState(1, {first: entry}), 0, 1, live[one])
    of_two = Stored(CurrentState(1, {second: entry}), 0, 1, live[two])
    before = Snapshot("f", 1, current={one: of_one, two: of_two}, sessions=live)
    view = external_view(before)
    after = Snapshot(
        "f",
        1,
        current={one: of_one, two: Stored(CurrentState(2, {}), 1, 2, live[two])},
        sessions=live,
    )
    changed = external_view(after, (before, view))
    assert changed == {first: {one: entry}}
    assert changed[first] is view[first]
