"""Takeovers of many partitions: former producers are fenced, what they appended behind a position is counted,
and found at the source.

stored positions that name a producer --> fence each (`fence_data`), all its partitions at once
                                      --> read to its control record (`TargetTail`) --> Behind
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeGuard

from ureplicator_common.errors import OperatingError
from ureplicator_common.kafka import ClusterUnavailable, PartitionUnavailable, Position
from ureplicator_common.kafka.client import (
    LATEST,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    ClusterClient,
    ClusterView,
)
from ureplicator_common.kafka.list_offsets import OffsetOrError, offsets_at
from ureplicator_common.kafka.positions import COMMAND_S, PositionStore
from ureplicator_common.kafka.producer_states import TOO_OLD, StatesOrError, producer_states
from ureplicator_common.kafka.provenance import UNCOUNTED, DataProducer, Provenance
from ureplicator_common.kafka.transactions.position_rows import TargetPartition
from ureplicator_common.kafka.transactions.producers import Producer
from ureplicator_worker.batches.header import SEQUENCE_MODULUS
from ureplicator_worker.copier.behind import (
    Behind,
    BehindOrError,
    PlaceOrError,
    TargetLost,
    Uncountable,
)
from ureplicator_worker.copier.takeover.reading import Unreadable, read_logs
from ureplicator_worker.copier.takeover.shared_tail import SharedTail
from ureplicator_worker.copier.takeover.source_place import SourcePlace
from ureplicator_worker.copier.takeover.target_tail import TargetTail

REMEMBERED_S = 600.0
"""Each fence writes a record into the target's log, so a start that is tried again, as long as the source is
away, does without. Leaders keep a fence for longer (`target_check`)."""


FENCES_S, LEAST_S = COMMAND_S / 2, 1.0
"""Limit of all fences of a try; the rest is left for reading. And a time in which a producer of a far cluster
is fenced, however many there are: the others follow at the next tries."""

Fenced = tuple[Producer | ClusterUnavailable, Mapping[TargetPartition, str]]


class Found(NamedTuple):
    """Records that were found behind a stored position, and the time."""

    stored: Position
    behind: Behind
    at_s: float


class Takeovers:
    """See `CountBehind`. The clients and the store are those of its threads."""

    def __init__(
        self, store: PositionStore, *, source: ClusterClient, target: ClusterClient
    ) -> None:
        self._store = store
        self._source, self._target = source, target
        self._collected: set[TargetPartition] = set()
        self._found: dict[TargetPartition, Found] = {}
        self._tries: dict[str, int] = {}
        """Of producers to be fenced."""
        self._found_shared: dict[TargetPartition, tuple[str, int]] = {}
        """Producers that the starts under way may share, and from which sequence on."""
        self._shared_once: dict[TargetPartition, tuple[str, int]] = {}
        """Those of them that a partition began with."""

    def collect(self, partition: TargetPartition) -> None:
        self._collected.add(partition)

    def at_target(
        self,
        stored: Mapping[TargetPartition, Position],
        view: ClusterView,
        ends: Mapping[TargetPartition, OffsetOrError],
        *,
        shareable: Mapping[TargetPartition, int],
    ) -> dict[TargetPartition, BehindOrError]:
        for key in stored:
            self._found_shared.pop(key, None)
        known = self._known(stored, ends)
        results: dict[TargetPartition, BehindOrError] = {**known}
        tails: dict[TargetPartition, TargetTail] = {}
        named = _by_producer({key: stored[key] for key in stored if key not in known}, view)
        results |= self._shared(named, view, shareable)
        named = {
            name: left
            for name, of_name in named.items()
            if (left := {key: of_name[key] for key in of_name if key not in results})
        }
        fenced = self._fenced(named)
        for name, (fence, refused) in fenced.items():
            for key, provenance in named[name].items():
                if isinstance(fence, ClusterUnavailable):
                    results[key] = fence
                elif key in refused:
                    results[key] = Unreadable(f"{key[0]}/{key[1]}: {refused[key]}", temporary=True)
                elif isinstance(end := ends[key], PartitionUnavailable):
                    results[key] = end
                else:
                    tails[key] = self._tail(key, provenance, fence, end)
        failed = [fence for fence, _ in fenced.values() if isinstance(fence, ClusterUnavailable)]
        if failed and len(failed) == len(named) and results.keys() == stored.keys() and not known:
            raise failed[0]
        return {**results, **self._counted(stored, view, tails)}

    def _shared(
        self,
        named: Mapping[str, Mapping[TargetPartition, Provenance]],
        view: ClusterView,
        shareable: Mapping[TargetPartition, int],
    ) -> dict[TargetPartition, BehindOrError]:
        """Records behind positions whose producers are used on, since their leaders surely know them. The
        others are to be fenced, also one that was shared at the same sequence before, in vain."""
        sent = {
            key: provenance
            for of_name in named.values()
            for key, provenance in of_name.items()
            if key in shareable and provenance.same is not None and not provenance.same.old
        }
        if not sent:
            return {}
        states = producer_states(self._target, view, sent)
        found: dict[TargetPartition, BehindOrError] = {}
        tails: dict[TargetPartition, SharedTail] = {}
        ends = dict.fromkeys(sent, LATEST)
        for portion in offsets_at(self._target, view, ends, isolation=READ_UNCOMMITTED):
            for key, end in portion.items():
                of_leader = states[key]
                following = next_shared(sent[key].appends, of_leader, oldest_ms=shareable[key])
                if isinstance(end, PartitionUnavailable):
                    found[key] = end
                elif is_away(of_leader):
                    found[key] = of_leader
                elif following >= 0 and self._may_share(key, name_of(sent[key]), following):
                    tails[key] = self._shared_tail(key, sent[key], end, following, of_leader)
        found |= read_logs(self._target, view, tails)
        for key, tail in tails.items():
            if tail.behind is not None and tail.behind.shared is not None:
                found[key] = tail.behind
                self._found_shared[key] = name_of(sent[key]), tail.behind.shared.sequence
        return {
            key: behind
            for key, behind in found.items()
            if not isinstance(behind, TargetLost | Uncountable)
        }

    def _may_share(self, key: TargetPartition, name: str, sequence: int) -> bool:
        """False where it was shared at the same sequence before, in vain, or records are to be compared."""
        return key not in self._collected and self._shared_once.get(key) != (name, sequence)

    def began(self, partition: TargetPartition) -> None:
        if partition in self._found_shared:
            self._shared_once[partition] = self._found_shared.pop(partition)

    def _shared_tail(
        self,
        key: TargetPartition,
        provenance: Provenance,
        end: int,
        following: int,
        states: StatesOrError,
    ) -> SharedTail:
        assert provenance.appends is not None
        return SharedTail(
            sent=provenance.appends,
            target_end=provenance.target_end,
            end=end,
            following=following,
            known=is_known(provenance.appends, states),
        )

    def _counted(
        self,
        stored: Mapping[TargetPartition, Position],
        view: ClusterView,
        tails: Mapping[TargetPartition, TargetTail],
    ) -> dict[TargetPartition, BehindOrError]:
        """Read the tails, and remember what lies behind each position."""
        errors = read_logs(self._target, view, tails)
        counted = {key: tail.behind for key, tail in tails.items() if tail.behind is not None}
        now_s = self._target.now_s()
        self._found |= {key: Found(stored[key], behind, now_s) for key, behind in counted.items()}
        return {**errors, **counted}

    def _fenced(
        self, named: Mapping[str, Mapping[TargetPartition, Provenance]]
    ) -> dict[str, Fenced]:
        """The producer that fences each, and the partitions that were refused; or why it is not fenced. First
        are those that were tried least, so that those of slow coordinators are not always before them."""
        self._tries = {name: self._tries[name] for name in named.keys() & self._tries.keys()}
        least_s = max(LEAST_S, FENCES_S / max(1, len(named)))
        fenced: dict[str, Fenced] = {}
        with self._target.within(FENCES_S):
            end_s = self._target.deadline_s(FENCES_S)
            for name in sorted(named, key=lambda name: self._tries.get(name, 0)):
                if self._target.now_s() >= end_s:
                    fenced[name] = ClusterUnavailable("other producers are fenced first"), {}
                    continue
                self._tries[name] = self._tries.get(name, 0) + 1
                try:
                    with self._target.within(least_s):
                        fenced[name] = self._store.fence_data(name, named[name])
                except ClusterUnavailable as error:
                    fenced[name] = error, {}
        return fenced

    def _known(
        self,
        stored: Mapping[TargetPartition, Position],
        ends: Mapping[TargetPartition, OffsetOrError],
    ) -> dict[TargetPartition, Behind]:
        """Records found a short while ago behind the same positions, if the target still has them."""
        least_s = self._target.now_s() - REMEMBERED_S
        self._found = {
            key: found
            for key, found in self._found.items()
            if found.at_s > least_s and stored.get(key, found.stored) == found.stored
        }
        known: dict[TargetPartition, Behind] = {}
        for key, found in self._found.items():
            end = ends.get(key)
            is_there = isinstance(end, int) and end >= found.behind.end
            if is_there and key in stored and key not in self._collected:
                known[key] = found.behind
        return known

    def at_source(
        self, wanted: Mapping[TargetPartition, tuple[int, Behind]], view: ClusterView
    ) -> dict[TargetPartition, PlaceOrError]:
        places: dict[TargetPartition, SourcePlace] = {}
        errors: dict[TargetPartition, OperatingError] = {}
        latest = dict.fromkeys(wanted, LATEST)
        for portion in offsets_at(self._source, view, latest, isolation=READ_UNCOMMITTED):
            for key, end in portion.items():
                position, behind = wanted[key]
                if isinstance(end, PartitionUnavailable):
                    errors[key] = end
                else:
                    places[key] = SourcePlace(position=position, behind=behind, end=end)
        errors |= read_logs(self._source, view, places, isolation=READ_COMMITTED)
        return {**errors, **{key: place.place for key, place in places.items() if place.place}}

    def _tail(
        self, key: TargetPartition, provenance: Provenance, fence: Producer, end: int
    ) -> TargetTail:
        assert provenance.appends is not None
        return TargetTail(
            sent=provenance.appends,
            target_end=provenance.target_end,
            fence=fence,
            end=end,
            collects=self._collects(key),
            begins=-1 if provenance.same is None else provenance.same.filling,
        )

    def _collects(self, key: TargetPartition) -> bool:
        collects = key in self._collected
        self._collected.discard(key)
        return collects


def name_of(provenance: Provenance) -> str:
    """Name of its producer."""
    return provenance.appends.name if provenance.appends is not None else ""


def is_away(states: StatesOrError) -> TypeGuard[PartitionUnavailable]:
    """The leader did not answer; it may know the producers."""
    return isinstance(states, PartitionUnavailable) and str(states) != TOO_OLD


def next_shared(sent: DataProducer | None, states: StatesOrError, *, oldest_ms: int) -> int:
    """Next sequence of a producer that may be used on; -1: it is to be fenced.

    A leader that does not know it, or knows control records of it only, may have forgotten it, unless it has
    sent nothing: then the log holds nothing of it, either (`SharedTail`).
    """
    if sent is None or sent.sequence == UNCOUNTED or isinstance(states, OperatingError):
        return -1
    state = states.get(sent.id)
    if state is not None and (state.epoch != sent.epoch or state.transaction_start >= 0):
        return -1
    if state is None or state.last_sequence < 0:
        return 0 if sent.sequence == 0 else -1
    if state.last_timestamp_ms < oldest_ms:
        return -1
    return (state.last_sequence + 1) % SEQUENCE_MODULUS


def is_known(sent: DataProducer, states: StatesOrError) -> bool:
    """The leader knows the last batch of the producer."""
    if isinstance(states, OperatingError) or sent.id not in states:
        return False
    return states[sent.id].last_sequence >= 0


def _by_producer(
    stored: Mapping[TargetPartition, Position], view: ClusterView
) -> dict[str, dict[TargetPartition, Provenance]]:
    """Positions by the name of their producer; none without a leader. A producer of a former topic of the
    name is fenced in the one that took its place: its late batches would be appended there."""
    named: dict[str, dict[TargetPartition, Provenance]] = {}
    for key, position in stored.items():
        provenance = Provenance.decode(position.metadata)
        if provenance is None or provenance.appends is None or position.offset < 0:
            continue
        if key in view.leaders:
            named.setdefault(provenance.appends.name, {})[key] = provenance
    return named
