"""The judge of a history: `check` is a pure function, and finds every kind of anomaly.

    source's log   holds all that was acknowledged, and nothing that was aborted
    target's log   holds what the source's log holds, unchanged, in its order, and nothing else;
                   exactly once: each as often as the source, for readers of uncommitted records, too, unless
                   it is done in transactions; at least once: repeats as `repeats` admits them
    a reader       finds, in order and without a hole, what the log holds at the end: so it sees a
                   repeat or a step back only if the log has one
    transactions   what a reader finds lies before the position that it reads next: data and position
                   become visible together
    commits        owners' epochs and positions never go back

What reads do not show is not judged: a position that is ahead of the data shows as lost records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ureplicator_common.model import Delivery
from ureplicator_testkit.histories.anomalies import Anomaly, Kind, listed
from ureplicator_testkit.histories.events import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    Event,
    Positions,
    Seen,
)
from ureplicator_testkit.histories.facts import Facts, Log, Observation, Place, View, facts_of
from ureplicator_testkit.histories.repeats import NO_LOST_WRITER, Lost, unexplained
from ureplicator_testkit.records.commits import violations

Identity = tuple[int, int]
"""Number of a record, and of its occurrence in the log."""
SOURCE = View("source")


@dataclass(frozen=True, slots=True)
class Promise:
    """`transactional`: exactly once with data and position in one transaction. `lost`: the writers whose last
    records may be there twice, at least once."""

    delivery: Delivery = Delivery.AT_LEAST_ONCE
    transactional: bool = False
    lost: Lost = NO_LOST_WRITER

    @property
    def isolations(self) -> tuple[str, ...]:
        """Levels at which readers of the target are promised each record once; the strongest promise last."""
        everyone = self.delivery is Delivery.EXACTLY_ONCE and not self.transactional
        return (READ_COMMITTED, READ_UNCOMMITTED) if everyone else (READ_COMMITTED,)


def check(events: Iterable[Event], promise: Promise) -> list[Anomaly]:
    facts = facts_of(events)
    targets = [View("target", isolation) for isolation in promise.isolations]
    missing = list(_missing_evidence(facts, targets))
    if missing:
        return missing
    source = facts.logs[SOURCE]
    return [
        *_source(facts, source),
        *(anomaly for view in targets for anomaly in _copy(facts, source, view)),
        *(anomaly for view in targets for anomaly in _repeats(facts, source, view, promise)),
        *_readers(facts, {SOURCE, *targets}),
        *(_torn(facts, source) if promise.transactional else ()),
        *(Anomaly(Kind.STALE_COMMIT, "target", text) for text in violations(facts.commits)),
    ]


def assert_sound(events: Iterable[Event], promise: Promise) -> None:
    found = check(events, promise)
    assert not found, "\n".join(map(str, found))


def _missing_evidence(facts: Facts, targets: Iterable[View]) -> Iterator[Anomaly]:
    if not facts.acknowledged:
        yield Anomaly(Kind.NO_PROOF, "source", "nothing was acknowledged")
    for view in (SOURCE, *targets):
        if not any(facts.logs.get(view, {}).values()):
            yield Anomaly(Kind.NO_PROOF, _name(view), "no whole log was read, or it is empty")


def _name(view: View) -> str:
    """Name of a place; committed records are what is usually read."""
    return view.end if view.isolation == READ_COMMITTED else f"{view.end} {view.isolation}"


# --- the logs ------------------------------------------------------------------------------------


def _source(facts: Facts, source: Log) -> Iterator[Anomaly]:
    """The source's own promise, without which the copy cannot be judged."""
    held = {(number, seen.number) for number, log in source.items() for seen in log}
    lost = facts.acknowledged - held
    if lost:
        yield Anomaly(Kind.LOST, "source", f"acknowledged: {listed(lost)}")
    if facts.aborted & held:
        yield Anomaly(Kind.PHANTOM, "source", f"aborted: {listed(facts.aborted & held)}")


def _copy(facts: Facts, source: Log, view: View) -> Iterator[Anomaly]:
    target = facts.logs[view]
    for partition in sorted({*source, *target}):
        wanted = _identified(source.get(partition, ()))
        found = _identified(target.get(partition, ()))
        digests = {(record.number, record.digest) for record in wanted.values()}
        numbers = {record.number for record in wanted.values()}
        known = [record for record in found.values() if record.number in numbers]
        for kind, wrong in (
            (Kind.LOST, [number for number, nth in wanted if (number, nth) not in found]),
            (
                Kind.PHANTOM,
                [
                    _phantom(facts, partition, record)
                    for record in found.values()
                    if record.number not in numbers
                ],
            ),
            (
                Kind.CHANGED,
                [
                    f"{record.number} at offset {record.offset}"
                    for record in known
                    if (record.number, record.digest) not in digests
                ],
            ),
            (Kind.REORDERED, _late(wanted, found)),
        ):
            if wrong:
                yield Anomaly(kind, f"{_name(view)} {partition}", listed(wrong))


def _identified(log: Iterable[Seen]) -> dict[Identity, Seen]:
    """Records with their numbers, in order. A producer at the source may repeat a record, so the nth is
    matched with the nth."""
    times: Counter[int] = Counter()
    found: dict[Identity, Seen] = {}
    for seen in log:
        found[seen.number, times[seen.number]] = seen
        times[seen.number] += 1
    return found


def _phantom(facts: Facts, partition: int, seen: Seen) -> str:
    place = (partition, seen.number)
    why = "never sent here"
    if place in facts.aborted:
        why = "aborted"
    elif place in facts.sent:
        why = "not kept by the source"
    return f"{seen.number} at offset {seen.offset}, {why}"


def _late(wanted: Iterable[Identity], found: Iterable[Identity]) -> list[int]:
    """Numbers. What the source lacks does not count, so a replay (1 2 3 2 3 4) is none."""
    places = {identity: place for place, identity in enumerate(wanted)}
    late, highest = [], -1
    for identity in found:
        if identity in places:
            if places[identity] < highest:
                late.append(identity[0])
            highest = max(highest, places[identity])
    return late


def _repeats(facts: Facts, source: Log, view: View, promise: Promise) -> Iterator[Anomaly]:
    target = facts.logs[view]
    if promise.delivery is Delivery.EXACTLY_ONCE:
        for partition, log in target.items():
            surplus = Counter(seen.number for seen in log)
            surplus -= Counter(seen.number for seen in source.get(partition, ()))
            if surplus:
                yield Anomaly(Kind.REPEATED, f"{_name(view)} {partition}", listed(surplus))
        return
    for text in unexplained(source, target, facts.commits, promise.lost):
        yield Anomaly(Kind.REPEATED, "target", text)


# --- readers -------------------------------------------------------------------------------------


def _readers(facts: Facts, views: Collection[View]) -> Iterator[Anomaly]:
    """Readers of the `views`: to others nothing is promised."""
    for (view, reader), observed in facts.observed.items():
        for partition, read in _joined(observed).items() if view in views else ():
            log = facts.logs[view].get(partition, ())
            yield from _judge_reader(f"{_name(view)} {partition}, {reader}", read, log)


def _joined(observed: Iterable[Observation]) -> dict[int, list[Seen]]:
    joined: dict[int, list[Seen]] = {}
    for observation in observed:
        if not isinstance(observation, Positions):
            for partition, records in observation.items():
                joined.setdefault(partition, []).extend(records)
    return joined


def _judge_reader(place: str, read: Sequence[Seen], log: Sequence[Seen]) -> Iterator[Anomaly]:
    back = [later.offset for before, later in pairwise(read) if later.offset <= before.offset]
    if back:
        yield Anomaly(Kind.STEP_BACK, place, f"to offset {listed(back)}")
    held = {seen.offset: seen for seen in log}
    vanished = [seen.offset for seen in read if held.get(seen.offset) != seen]
    if vanished:
        yield Anomaly(Kind.VANISHED, place, f"at offset {listed(vanished)}")
    found = {seen.offset for seen in read}
    first, last = min(found), max(found)
    skipped = [offset for offset in held if first < offset < last and offset not in found]
    if skipped:
        yield Anomaly(Kind.SKIPPED, place, f"at offset {listed(skipped)}")


def _torn(facts: Facts, source: Log) -> Iterator[Anomaly]:
    """A position is read after the records, so it may be ahead of them, and never behind."""
    offsets: dict[Place, int] = {}
    for partition, log in source.items():
        for seen in log:
            offsets.setdefault((partition, seen.number), seen.offset)
    for (view, reader), observed in facts.observed.items():
        visible: dict[int, int] = {}
        for observation in observed if view.end == "target" else ():
            if isinstance(observation, Positions):
                for partition, offset in observation.offsets.items():
                    if partition in visible and visible[partition] >= offset:
                        yield Anomaly(
                            Kind.TORN,
                            f"target {partition}, {reader}",
                            f"the record of offset {visible[partition]} was visible "
                            f"before the position {offset} passed it",
                        )
                continue
            for partition, records in observation.items():
                known = (offsets.get((partition, seen.number), -1) for seen in records)
                visible[partition] = max(visible.get(partition, -1), *known)
