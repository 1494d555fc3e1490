"""Start position of a partition (step 4 of the order in `ureplicator_common.kafka.positions`).

| the store has   | and                             | copying begins                                   |
|-----------------|---------------------------------|--------------------------------------------------|
| a position      | it belongs to these topics      | there                                            |
| a position      | a topic was recreated           | nowhere, or where the route's policy says        |
| a position      | of another source cluster       | nowhere                                          |
| a position      | a topic was recreated, and the  | as if there were none                            |
|                 | operator restarted copying      |                                                  |
| none            | there was one once              | nowhere: it was lost                             |
| none            | partition known when whitelisted| at the route's `start`                           |
| none            | partition appeared later        | at its first record                              |
| a position      | the target's log ends before    | nowhere, or there (the policy), with a gap       |
|                 | what it acknowledged            |                                                  |
| a position      | nothing but the end of the last | not yet; where it stays missing, as with a       |
|                 | transaction is missing there    | target that lost offsets                         |
| a position      | it names a producer             | after what that producer has appended            |

The source topic must be the one that the leader has recorded: nothing of a recreated topic is copied
before the leader has decided how to go on.

"Nowhere" is an ERROR that operators see. Jumping to the end would lose records, and restarting would
repeat all of them: neither is ever done without the operator's policy.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from ureplicator_common.errors import OperatingError
from ureplicator_common.kafka import (
    ClusterUnavailable,
    PartitionUnavailable,
    Position,
    topic_id_text,
)
from ureplicator_common.kafka.client import (
    EARLIEST,
    LATEST,
    READ_UNCOMMITTED,
    ClusterClient,
    ClusterView,
)
from ureplicator_common.kafka.list_offsets import OffsetOrError, TopicPartition, offsets_at
from ureplicator_common.kafka.provenance import NOT_MAPPED, Provenance
from ureplicator_common.model import GapPolicy, Partition
from ureplicator_worker.copier.behind import (
    Behind,
    BehindOrError,
    CountBehind,
    Disagreement,
    Place,
    PlaceOrError,
    TargetLost,
    Uncountable,
)
from ureplicator_worker.copier.position_values import Counted, StartPosition
from ureplicator_worker.lifeline.messages import Grant

NO_POSITION = Position(offset=-1)
FENCED = "the producer of a lost owner was fenced"
"""Reason for which offsets are no longer the same: the fence has taken one."""


class CannotStart(OperatingError):
    """The partition cannot be copied now; `temporary` if it may become possible without an operator."""

    def __init__(self, reason: str, *, temporary: bool) -> None:
        super().__init__(reason)
        self.temporary = temporary


class Disagrees(CannotStart):
    """Count and bytes of what was copied disagree: all of it is compared at the next try."""


@dataclass(frozen=True, slots=True)
class TargetState:
    """The target as it is when partitions start. `ends`: of the logs of those whose position names one.
    `unmarked`: those of them that wait no longer for the marker of the last transaction. `behind`: what a
    fenced producer has appended behind the position. `starts`: of the logs that are to be empty."""

    view: ClusterView
    ends: Mapping[TopicPartition, OffsetOrError]
    starts: Mapping[TopicPartition, OffsetOrError] = field(default_factory=dict)
    unmarked: frozenset[TopicPartition] = frozenset()
    behind: Mapping[TopicPartition, BehindOrError] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StartDecision:
    """Question to the source for the offset: `time_ms`, time of the first record to copy; or
    `behind`, the records that were copied behind the position."""

    beginning: StartPosition
    time_ms: int | None = None
    behind: Behind | None = None


@contextmanager
def cluster_errors_named(end: str) -> Iterator[None]:
    """Name the end, `source` or `target`, in the error of an unavailable cluster."""
    try:
        yield
    except ClusterUnavailable as error:
        raise type(error)(f"{end}: {error}", delay_s=error.delay_s) from error


def read_target(
    grants: Mapping[Partition, Grant],
    stored: Mapping[TopicPartition, Position],
    target: ClusterClient,
) -> TargetState:
    """Raises ClusterUnavailable."""
    view = target.view(sorted({grant.target_topic for grant in grants.values()}))
    wanted = {
        key: LATEST
        for partition, grant in grants.items()
        if (key := _target_key(partition, grant)) in view.leaders
        and (grant.settings.is_fenced(partition.topic) or _names_end(stored[key]))
    }
    first = {
        key: EARLIEST
        for partition, grant in grants.items()
        if (key := _target_key(partition, grant)) in wanted
        and grant.settings.has_same_offsets(partition.topic)
        and stored[key].offset < 0
    }
    starts = _offsets(
        target, view, first
    )  # read before the ends: what is appended in between shows
    return TargetState(view, _offsets(target, view, wanted), starts)


def _offsets(
    target: ClusterClient, view: ClusterView, wanted: Mapping[TopicPartition, int]
) -> dict[TopicPartition, OffsetOrError]:
    found: dict[TopicPartition, OffsetOrError] = {}
    for portion in offsets_at(target, view, wanted, isolation=READ_UNCOMMITTED):
        found |= portion
    return found


def find_starts(
    grants: Mapping[Partition, Grant],
    stored: Mapping[TopicPartition, Position],
    *,
    source: ClusterClient,
    target: TargetState,
    count: CountBehind,
) -> Iterator[dict[Partition, StartPosition | CannotStart]]:
    """The start of each partition, or why it cannot; in portions, as they become known.

    Raises ClusterUnavailable. A partition without a leader fails alone.
    """
    with cluster_errors_named("source"):
        view = source.view(sorted({partition.topic for partition in grants}))
    known: dict[Partition, StartPosition | CannotStart] = {}
    searched: dict[Partition, StartDecision] = {}
    counted: dict[Partition, StartDecision] = {}
    for partition, grant in grants.items():
        position = stored[_target_key(partition, grant)]
        try:
            decision = decide(partition, grant, position, source=view, target=target)
        except CannotStart as error:
            known[partition] = error
            continue
        if decision.behind is not None:
            counted[partition] = decision
        elif decision.time_ms is None:
            known[partition] = decision.beginning
        else:
            searched[partition] = decision
    if known:
        yield known
    yield from _search(searched, source, view)
    if counted:
        yield _behind_counted(counted, count, view)


def _search(
    decisions: Mapping[Partition, StartDecision], source: ClusterClient, view: ClusterView
) -> Iterator[dict[Partition, StartPosition | CannotStart]]:
    """Offsets at the source."""
    by_key = {(part.topic, part.number): part for part in decisions}
    wanted = {
        key: decision.time_ms
        for key, decision in zip(by_key, decisions.values(), strict=True)
        if decision.time_ms is not None
    }
    for portion in offsets_at(source, view, wanted):
        found: dict[Partition, StartPosition | CannotStart] = {}
        for key, offset in portion.items():
            partition = by_key[key]
            if isinstance(offset, PartitionUnavailable):
                found[partition] = CannotStart(f"source: {offset}", temporary=True)
            else:
                found[partition] = replace(decisions[partition].beginning, position=offset)
        yield found


def _behind_counted(
    decisions: Mapping[Partition, StartDecision], count: CountBehind, view: ClusterView
) -> dict[Partition, StartPosition | CannotStart]:
    """Positions behind what was copied already."""
    wanted = {
        (part.topic, part.number): (decision.beginning.position, decision.behind)
        for part, decision in decisions.items()
        if decision.behind is not None
    }
    places = count.at_source(wanted, view)
    return {
        part: _placed(decision, places[part.topic, part.number])
        for part, decision in decisions.items()
    }


def _placed(decision: StartDecision, place: PlaceOrError) -> StartPosition | CannotStart:
    if isinstance(place, OperatingError):
        return _not_placed(place, decision.behind)
    return replace(
        decision.beginning,
        position=place.offset,
        leader_epoch=place.leader_epoch,
        counted=counted_records(decision, place),
    )


def counted_records(decision: StartDecision, place: Place) -> Counted | None:
    """Records behind the position, up to a place of the source; None if the target's log has holes there,
    or the source has lost some."""
    behind, position = decision.behind, decision.beginning.position
    assert behind is not None
    if behind.first < 0 or not place.spans:
        return None
    return Counted(position, behind.first, place.spans)


def _not_placed(error: OperatingError, behind: Behind | None) -> CannotStart:
    if isinstance(error, Disagreement):
        compared = behind is not None and behind.copies is not None
        return Disagrees(f"source: {error}", temporary=not compared)
    return CannotStart(f"source: {error}", temporary=True)


def decide(
    partition: Partition,
    grant: Grant,
    stored: Position,
    *,
    source: ClusterView,
    target: TargetState,
) -> StartDecision:
    """See the table above. Raises CannotStart."""
    source_id, target_id = _topics(partition, grant, stored, source, target.view)
    former = Provenance.decode(stored.metadata)
    provenance = former if stored.offset >= 0 else None
    gap = _provenance_mismatch(provenance, source.cluster_id, source_id, target_id)
    if gap and grant.restarted:
        gap, stored = "", NO_POSITION
    beginning = StartPosition(
        position=stored.offset,
        leader_epoch=stored.leader_epoch,
        committed=stored.offset,
        source_cluster=source.cluster_id,
        source_topic_id=source_id,
        target_topic_id=target_id,
        map_chunks=former.map_chunks if former else 0,
        target_end=_present_end(partition, grant, target),
    )
    key = _target_key(partition, grant)
    behind = target.behind.get(key)
    if stored.offset >= 0 and not gap:
        if behind is not None:
            mapped = provenance.mapped if provenance else NOT_MAPPED
            end = target.ends.get(key)
            return _behind(beginning, grant, behind, end, mapped=mapped)
        waits = key not in target.unmarked
        end = target.ends.get(key)
        return StartDecision(_checked_end(beginning, grant, provenance, end, waits=waits))
    if isinstance(behind, OperatingError) and not isinstance(behind, TargetLost | Uncountable):
        raise CannotStart(f"target: {behind}", temporary=True)  # its producer may not be fenced yet
    at = stored.offset if gap else -1
    fresh = replace(beginning, position=-1, leader_epoch=-1, committed=-1, gap=gap, gap_offset=at)
    return StartDecision(fresh, _time(grant, stored, gap))


def _checked_end(
    beginning: StartPosition,
    grant: Grant,
    provenance: Provenance | None,
    end: OffsetOrError | None,
    *,
    waits: bool,
) -> StartPosition:
    """Compare the target's present end with what it acknowledged. `waits`: a marker may be on its way. Raises
    CannotStart."""
    if provenance is None or provenance.target_end < 0 or end is None:
        return beginning
    if isinstance(end, PartitionUnavailable):
        raise CannotStart(f"target: {end}", temporary=True)
    acknowledged = provenance.target_end + provenance.markers
    if end >= acknowledged:
        return replace(
            beginning,
            target_end=provenance.target_end,
            mapped=provenance.mapped,
            markers=provenance.markers,
        )
    if end >= provenance.target_end and waits:
        raise CannotStart(f"target: {marker_missing(end)}", temporary=True)
    return _lost(beginning, grant, f"target lost offsets {end:,} to {acknowledged - 1:,}", end)


def _lost(beginning: StartPosition, grant: Grant, lost: str, end: int) -> StartPosition:
    """Go on at the position, if the policy says so. Raises CannotStart."""
    if grant.settings.on_gap is GapPolicy.STOP:
        raise CannotStart(f"{lost} (on_gap: stop)", temporary=False)
    at = beginning.position
    return replace(beginning, committed=-1, gap=lost, gap_offset=at, target_end=end)


def _behind(
    beginning: StartPosition,
    grant: Grant,
    found: BehindOrError,
    end: OffsetOrError | None,
    *,
    mapped: int,
) -> StartDecision:
    """Begin behind what a fenced producer has appended. Raises CannotStart."""
    if isinstance(found, TargetLost):
        assert isinstance(end, int)
        return StartDecision(_lost(beginning, grant, str(found), end))
    if isinstance(found, OperatingError):
        raise CannotStart(f"target: {found}", temporary=not isinstance(found, Uncountable))
    at = replace(
        beginning,
        target_end=found.end,
        mapped=mapped,
        appends=found.shared,
        shared=found.shared is not None,
        shift_reason="" if found.shared else FENCED,
    )
    return StartDecision(at, behind=found if found.count else None)


def source_offset(partition: Partition, source: ClusterClient, timestamp_ms: int) -> int:
    """Raises ClusterUnavailable."""
    key = (partition.topic, partition.number)
    with cluster_errors_named("source"):
        view = source.view([partition.topic])
        (portion,) = offsets_at(source, view, {key: timestamp_ms})
        found = portion[key]
        if isinstance(found, PartitionUnavailable):
            raise found
        return found


def policy_time(policy: GapPolicy) -> int:
    """Time at which a policy other than `stop` continues."""
    assert policy is not GapPolicy.STOP
    return EARLIEST if policy is GapPolicy.EARLIEST else LATEST


def marker_missing(end: int) -> str:
    """Reason to wait for a log that ends where the marker of a committed transaction should be: it may be on
    its way, or lost with a record before it."""
    return f"the log ends at {end:,}, where the end of the last transaction should be"


def _target_key(partition: Partition, grant: Grant) -> TopicPartition:
    return (grant.target_topic, partition.number)


def _present_end(partition: Partition, grant: Grant, target: TargetState) -> int:
    """End of the target's log, behind which a producer begins; -1 where it does not count. Raises
    CannotStart."""
    if not grant.settings.is_fenced(partition.topic):
        return -1
    end = target.ends[_target_key(partition, grant)]
    if isinstance(end, PartitionUnavailable):
        raise CannotStart(f"target: {end}", temporary=True)
    return end


def _names_end(stored: Position) -> bool:
    """True if it says where the target's log ended, or who has appended to it since."""
    provenance = Provenance.decode(stored.metadata)
    return provenance is not None and (provenance.target_end >= 0 or provenance.appends is not None)


def _topics(
    partition: Partition,
    grant: Grant,
    stored: Position,
    source: ClusterView,
    target: ClusterView,
) -> tuple[str, str]:
    """Ids of both topics. Raises CannotStart if one is missing, or its partition is."""
    ends = (
        ("source", source, partition.topic),
        ("target", target, grant.target_topic),
    )
    for end, view, topic in ends:
        if topic in view.missing and stored.offset >= 0:
            raise CannotStart(f"{end} topic {topic} was deleted", temporary=True)
        if topic in view.refused:
            raise CannotStart(f"{end}: {view.refused[topic]}", temporary=True)
        if topic not in view.topic_ids:
            raise CannotStart(f"topic {topic} does not exist on the {end}", temporary=True)
        if (topic, partition.number) not in view.leaders:
            raise CannotStart(
                f"topic {topic} has no partition {partition.number} on the {end}", temporary=True
            )
    source_id = source.topic_ids[partition.topic]
    if grant.source_topic_id:
        shown = topic_id_text(uuid.UUID(source_id))
        if shown != grant.source_topic_id:
            raise CannotStart(
                f"source topic was recreated (was {grant.source_topic_id}, is {shown})",
                temporary=True,
            )
    return source_id, target.topic_ids[grant.target_topic]


def _provenance_mismatch(
    provenance: Provenance | None, cluster: str, source_id: str, target_id: str
) -> str:
    """Reason if a stored position does not belong to these topics; "" if it does, or none is stored."""
    if provenance is None:
        return ""
    if provenance.source_cluster != cluster:
        raise CannotStart(
            f"position belongs to source cluster {provenance.source_cluster}, this is {cluster}",
            temporary=False,
        )
    if provenance.source_topic != source_id:
        return _recreated("source", provenance.source_topic, source_id)
    if provenance.target_topic != target_id:
        return _recreated("target", provenance.target_topic, target_id)
    return ""


def _recreated(end: str, former_id: str, id: str) -> str:
    what = f"{end} topic was recreated since the position was committed"
    return f"{what}: its id was {former_id}, now it is {id}"


def _time(grant: Grant, stored: Position, gap: str) -> int:
    """Timestamp of the first record to copy. Raises CannotStart."""
    policy = grant.settings.on_gap
    if gap:
        if policy is GapPolicy.STOP:
            raise CannotStart(f"{gap} (on_gap: stop)", temporary=False)
        return policy_time(policy)
    if grant.had_position:
        raise CannotStart("position lost: one was committed once", temporary=False)
    if not grant.initial:
        return EARLIEST
    named = {"earliest": EARLIEST, "latest": LATEST}
    start = grant.settings.start
    return named[start] if start in named else int(start)
