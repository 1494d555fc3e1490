"""Positions that operators set or forget, once no worker can commit them any more. Pure.

A request is a mark in the topic's intent (`TopicIntent.positions`): the offset was chosen and checked
when it was written, so that the operator knows it, and a repeated attempt commits the same.

    pending    the plan takes the partition from its worker, and gives it to none (`state.exclusions`)
    released   the leader commits the offset as an owner (`engines.position_changes`), and writes the
               outcome into the intent
    done       the partition is placed again, and begins at the stored position

Each step is safe to be the last one of a leader: the mark is still there, and the next leader repeats
the commit. No worker can hold the partition until the mark has its outcome.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ureplicator_common.model import OwnerEpoch, TopicKey, TopicState
from ureplicator_common.znode_contents import CHANGED, PositionChange, TopicIntent
from ureplicator_controller.core.planning.holders import FenceIds, HolderRules
from ureplicator_controller.core.planning.partitions import PartitionView, PartitionViews
from ureplicator_controller.core.state.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class DueChanges:
    """Changes of one topic to carry out now. `fence`: transactional ids that could still commit them.
    `epoch`: the leader epoch at which that holds."""

    intent: TopicIntent
    target_topic: str
    changes: Mapping[int, PositionChange]
    owner_epochs: Mapping[int, OwnerEpoch]
    fence: tuple[str, ...]
    epoch: int


@dataclass(frozen=True, slots=True)
class ChangeOutcome:
    """Outcome of one change: the position that was stored before, and why it was refused ("": done)."""

    change: PositionChange
    replaced: int
    refused: str = ""


def due_changes(snapshot: Snapshot) -> dict[TopicKey, DueChanges]:
    """Pending changes of partitions that no live worker holds."""
    pending = {
        key: stored.value
        for key, stored in snapshot.topics.items()
        if any(change.is_pending for change in stored.value.positions.values())
    }
    if not pending:
        return {}
    rules, fence_ids, views = (
        HolderRules(snapshot),
        FenceIds(snapshot),
        PartitionViews(snapshot).by_topic,
    )
    found = {
        key: _due(snapshot, key, intent, views[key], rules=rules, fence_ids=fence_ids)
        for key, intent in pending.items()
    }
    return {key: due for key, due in found.items() if due is not None}


def _due(
    snapshot: Snapshot,
    key: TopicKey,
    intent: TopicIntent,
    views: Mapping[int, PartitionView],
    *,
    rules: HolderRules,
    fence_ids: FenceIds,
) -> DueChanges | None:
    """None while all are held, the ids to fence are unknown, or the topic is stopped or deleted."""
    is_published = key.route in snapshot.routes
    if not is_published or intent.stopped or intent.state is TopicState.DELETING:
        return None
    released = {
        number: views[number]
        for number, change in intent.positions.items()
        if change.is_pending and number < intent.partitions and not rules.is_held(views[number])
    }
    holders = {worker for view in released.values() for worker in rules.remaining_holders(view)}
    fence = fence_ids.of(key.route, sorted(holders))
    if not released or fence is None:
        return None
    return DueChanges(
        intent,
        intent.target_topic,
        {number: intent.positions[number] for number in released},
        {
            number: view.before.owner_epoch if view.before else OwnerEpoch(0)
            for number, view in released.items()
        },
        fence,
        snapshot.epoch,
    )


def with_outcomes(intent: TopicIntent, outcomes: Mapping[int, ChangeOutcome]) -> TopicIntent:
    """The intent after these changes. One that was replaced by a later request stays pending.

    A position that was set counts as committed once: if it is missing later, it was lost. One that was
    forgotten never was: the partition begins at the route's `start`.
    """
    positions, had = dict(intent.positions), set(intent.had_position)
    for number, outcome in outcomes.items():
        change = outcome.change
        if positions.get(number) != change:
            continue
        text = outcome.refused or CHANGED
        positions[number] = replace(change, outcome=text, replaced=outcome.replaced)
        if not outcome.refused:
            (had.add if change.offset >= 0 else had.discard)(number)
    return replace(intent, positions=positions, had_position=frozenset(had))
