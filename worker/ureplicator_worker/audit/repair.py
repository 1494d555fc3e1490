"""Copies missing records again, where no order is broken.

A record that is copied again comes after everything that the target has. So it may be done for

* records at the end of the partition: nothing follows them at the source;
* records with a key, if no later record of the source has the same key, but for missing ones that are
  copied again after it: consumers that rely on the order of each key see no difference.

Any other record is refused with the reason; `ureplicator positions set` copies it with all that follows.
The records of the source are read from the first missing one to the end: the keys of the missing records
are kept, nothing else. The next audit finds those that are not at the end *reordered*, which they are.

No record is copied twice. A result may be older than the target: a former repair copied the record, then
the audit was resumed; or the record lies too far from its place to be recognised as moved. So the target's
whole log is read before anything is written, with the records behind its last stable offset, since a
transaction of a worker may hide what a former repair wrote. A missing record that has an equal one there is
refused, also if that is the copy of another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ureplicator_worker.audit.core.side import Chunk, Content
from ureplicator_worker.audit.result import AuditRequest, AuditResult, FindingKind
from ureplicator_worker.audit.streams import PartitionLog, PartitionWriter

Clusters = Mapping[str, Mapping[str, str]]
MAX_BYTES = 64 << 20
"""Records that are held to be copied, of one partition."""


@dataclass(frozen=True, slots=True)
class Repaired:
    """Source offsets of one partition: copied again, and refused with the reason."""

    partition: int
    copied: tuple[int, ...]
    refused: Mapping[int, str]


def plan_repair(
    missing: Sequence[int], chunks: Iterable[Chunk]
) -> tuple[dict[int, Content], dict[int, str]]:
    """Missing records that may be copied, in order, and those that may not. `chunks`: the source from
    the first missing record on, to its end."""
    wanted = set(missing)
    held: dict[int, Content] = {}
    keys: dict[bytes | None, list[int]] = {}
    refused: dict[int, str] = {}
    size_bytes = 0
    for chunk in chunks:
        for offset, content in zip(chunk.offsets, chunk.contents, strict=True):
            key = content[0]
            if offset in wanted and content[3] <= 0:
                refused[offset] = "it has no timestamp, which librdkafka cannot produce"
                continue
            if offset in wanted:
                size_bytes += len(content[1] or b"") + len(key or b"")
                if size_bytes > MAX_BYTES:
                    refused[offset] = "too much is missing to be held in memory"
                    continue
                held[offset] = content
                keys.setdefault(key, []).append(offset)
                continue
            for late in keys.pop(None, ()):
                refused[late] = f"it has no key, and records follow it, at offset {offset}"
            for late in keys.pop(key, ()):
                refused[late] = f"a later record has the same key, at offset {offset}"
    gone = wanted - held.keys() - refused.keys()
    refused |= dict.fromkeys(gone, "the source no longer has it")
    return {offset: held[offset] for offset in sorted(held.keys() - refused.keys())}, refused


def plan_new(
    missing: Sequence[int],
    source: Callable[[], Iterable[Chunk]],
    target: Callable[[], Iterable[Chunk]],
    *,
    timestamps: bool = True,
) -> tuple[dict[int, Content], dict[int, str]]:
    """A plan as of `plan_repair`, without the records that the target has. `source` and `target` read from
    the first missing record, and the whole log; `timestamps`: false where the target stamps records itself.

    A record that is there counts as a later one of its key, so the others are planned again without it.
    """
    left = set(missing)
    known: dict[int, str] = {}
    while True:
        records, refused = plan_repair(sorted(left), source())
        found = find_copies(records, target(), timestamps=timestamps) if records else {}
        if not found:
            return records, known | refused
        left -= found.keys()
        known |= {
            offset: f"the target has an equal record, at offset {copy}"
            for offset, copy in found.items()
        }


def find_copies(
    records: Mapping[int, Content], chunks: Iterable[Chunk], *, timestamps: bool
) -> dict[int, int]:
    """Source offset -> target offset of the last equal record."""
    parts = 4 if timestamps else 3
    wanted: dict[Content, list[int]] = {}
    for offset, content in records.items():
        wanted.setdefault(content[:parts], []).append(offset)
    found: dict[int, int] = {}
    for chunk in chunks:
        for copy, content in zip(chunk.offsets, chunk.contents, strict=True):
            for offset in wanted.get(content[:parts], ()):
                found[offset] = copy
    return found


def repair(request: AuditRequest, result: AuditResult, *, clusters: Clusters) -> list[Repaired]:
    """Raises OperatingError."""
    missing: dict[int, list[int]] = {}
    for finding in result.findings:
        if finding.kind is FindingKind.MISSING:
            missing.setdefault(finding.partition, []).append(finding.source_offset)
    return [_repair(request, number, offsets, clusters) for number, offsets in missing.items()]


def _repair(
    request: AuditRequest, number: int, offsets: Sequence[int], clusters: Clusters
) -> Repaired:
    source, _, target = request.route.partition(".")
    topic, copy = request.topic, request.target_topic
    with PartitionLog(clusters[source], topic, number) as log:
        records, refused = plan_new(
            offsets,
            lambda: log.chunks(max(min(offsets), log.extent().start), log.extent().end),
            lambda: _whole(clusters[target], copy, number),
            timestamps=request.options.timestamps,
        )
    if records:
        refused |= PartitionWriter(clusters[target], copy, number).write(records)
    return Repaired(number, tuple(offset for offset in records if offset not in refused), refused)


def _whole(cluster: Mapping[str, str], topic: str, number: int) -> Iterator[Chunk]:
    """All committed records, and those that may become it."""
    with PartitionLog(cluster, topic, number) as log:
        extent = log.extent()
        yield from log.chunks(extent.start, extent.end)
    with PartitionLog(cluster, topic, number, committed=False) as log:
        yield from log.chunks(extent.end, log.extent().end)
