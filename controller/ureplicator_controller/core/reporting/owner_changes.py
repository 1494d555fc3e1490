"""Owner changes of a plan, for display: partition, source, target and reason."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ureplicator_common.contents import IdealEntry
from ureplicator_common.model import OwnerEpoch, Partition, WorkerId
from ureplicator_controller.core.planning.steps import Step, WriteIdeal
from ureplicator_controller.core.state.snapshot import Snapshot


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


def _owner(entry: IdealEntry | None) -> WorkerId | None:
    return entry.worker if entry else None
