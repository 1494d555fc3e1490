"""Owner changes of a plan: partition, source, target and reason; and the id of a plan, by which operators
apply what they were shown.

The id is a digest of the changes. The same fleet gives the same id, in REST as in the leader, and a plan that
differs in a single move has another one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ureplicator_common.model import OwnerEpoch, Partition, WorkerId
from ureplicator_common.znode_contents import IdealEntry
from ureplicator_controller.core.planning.steps import Step, WriteIdeal
from ureplicator_controller.core.state.snapshot import Snapshot

PLAN_ID_DIGITS = 16


@dataclass(frozen=True, slots=True)
class OwnerChange:
    """Change of a partition's owner. `source` or `target` None: it had, or gets, no owner."""

    partition: Partition
    source: WorkerId | None
    target: WorkerId | None
    reason: str
    owner_epoch: OwnerEpoch

    def as_json(self) -> dict[str, object]:
        return {
            "route": str(self.partition.route),
            "topic": self.partition.topic,
            "partition": self.partition.number,
            "from": self.source,
            "to": self.target,
            "reason": self.reason,
        }


def owner_changes(snapshot: Snapshot, steps: Sequence[Step]) -> Iterator[OwnerChange]:
    """Owner changes that the steps make relative to the snapshot, in their order."""
    for step in steps:
        if isinstance(step, WriteIdeal):
            stored = snapshot.ideal.get(step.key)
            before = stored.value.entries if stored else {}
            for number, entry in sorted(step.ideal.entries.items()):
                source = _owner(before.get(number))
                if source != entry.worker:
                    partition = Partition(step.key.route, step.key.topic, number)
                    yield OwnerChange(
                        partition, source, entry.worker, entry.reason, entry.owner_epoch
                    )


def plan_id(changes: Iterable[OwnerChange]) -> str:
    """Digest of all owner changes of a plan, in hexadecimal; that of a plan without any is one, too."""
    lines = sorted(f"{change.partition} {change.source} {change.target}" for change in changes)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:PLAN_ID_DIGITS]


def _owner(entry: IdealEntry | None) -> WorkerId | None:
    return entry.worker if entry else None
