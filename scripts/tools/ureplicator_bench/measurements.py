"""Measurements that have a flag of their own, instead of copies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from ureplicator_bench import merge
from ureplicator_bench.figures import Figure
from ureplicator_bench.fleets import auditing, control, handover, members, scale, takeover
from ureplicator_bench.groups import failover, sync

Progress = Callable[[str], None]
ALONE: Mapping[str, Callable[[Path, Progress], Iterable[Figure]]] = {
    "failover": lambda folder, progress: failover.figures(folder, progress=progress),
    "audit": lambda folder, progress: auditing.figures(folder, progress=progress),
    "control": lambda folder, progress: control.figures(folder, progress=progress),
    "handover": lambda folder, _: handover.figures(folder),
    "members": lambda folder, _: members.figures(folder),
    "merge": lambda _, progress: merge.figures(progress=progress),
}
"""Figures of a measurement in this folder."""
COUNTED: Mapping[str, Callable[..., Iterable[Figure]]] = {
    "scale": scale.figures,
    "takeover": takeover.figures,
    "groups": sync.figures,
}
"""Figures of a measurement with a number of its own."""
