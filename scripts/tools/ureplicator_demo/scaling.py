"""A worker joins while records are copied, and is taken away again; no other partition moves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from ureplicator_demo.fleet import Fleet
from ureplicator_testkit.servers.processes import eventually

CHANGE_S = 90.0


def held(topic: Mapping[str, Any]) -> dict[int, str]:
    """Partition -> the worker where it is ONLINE, from the description of a topic."""
    views = {int(number): states for number, states in topic["externalView"].items()}
    return {
        number: next(iter(states))
        for number, states in views.items()
        if list(states.values()) == ["ONLINE"]
    }


def grow_and_shrink(fleet: Fleet, topic: str, partitions: int, console: Console) -> None:
    """Raises AssertionError if a partition moves that need not, or a change does not end in time."""

    def owners() -> dict[int, str]:
        found = held(fleet.rest("GET", f"/topics/{topic}"))
        return found if len(found) == partitions else {}

    before = eventually(owners, CHANGE_S, "all partitions are copied")
    share = partitions // (len(set(before.values())) + 1)
    joined = fleet.add_worker()
    console.print(f"  {joined} starts: see it take its share at {fleet.url}/")

    def joined_owners() -> dict[int, str]:
        found = owners()
        return found if list(found.values()).count(joined) >= share else {}

    after = eventually(joined_owners, CHANGE_S, f"{joined} has its share")
    moved = {number for number, owner in after.items() if owner != before[number]}
    assert all(after[number] == joined for number in moved), "others moved, too"
    console.print(f"  {joined} has partitions {sorted(moved)}; no other one moved")
    assert fleet.take_away(joined) == 0, f"{joined} did not end cleanly"

    def left_owners() -> dict[int, str]:
        found = owners()
        return found if joined not in found.values() else {}

    left = eventually(left_owners, CHANGE_S, f"the share of {joined} is copied by others")
    stayed = {number for number, owner in left.items() if owner == after[number]}
    assert stayed == set(after) - moved, "others moved, too"
    console.print(f"  {joined} left: others copy its partitions")
