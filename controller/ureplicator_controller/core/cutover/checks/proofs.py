"""Checks of what is proved: audits, gaps since, and offsets that are to be the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from ureplicator_common.audits.standing import AuditState, Standing
from ureplicator_common.model import EventKind, Partition, TopicKey
from ureplicator_controller.core.cutover.facts import Facts, Level, PlanFinding, counted, or_ok
from ureplicator_controller.core.reporting.event_history import past_events

SHIFTED = "shifted"
"""Kind of difference of a record that is there, with another offset than its topic is to have."""


def audits(facts: Facts) -> Iterable[PlanFinding]:
    """What was verified of each topic."""
    text = f"{counted(len(facts.plan.topics), 'topic')} verified"
    oldest = [found.verified_ms for found in facts.standings.values() if found.verified_ms]
    if oldest:
        text += f", the one of the longest time ago at {_time(min(oldest))}"
    found = (_audit(facts, topic) for topic in facts.plan.topics)
    return or_ok(filter(None, found), "audit", str(facts.route), text)


def _audit(facts: Facts, topic: str) -> PlanFinding | None:
    key = TopicKey(facts.route, topic)
    standing = facts.standings.get(key, Standing(AuditState.NEVER))
    if standing.state is AuditState.VERIFIED:
        return None
    text = f"{standing.state}: {standing.reason}" if standing.reason else str(standing.state)
    level, advice = Level.WARNING, "ureplicator audits request has it compared"
    if standing.state is AuditState.DIFFERING:
        stored = facts.snapshot.audits.states.get(key)
        counts = stored.value.differences if stored else {}
        text = ", ".join(f"{count} {kind}" for kind, count in counts.items()) or text
        text = f"the audit found differences: {text}"
        level = Level.WARNING if counts.keys() == {SHIFTED} else Level.BLOCKS
        advice = "ureplicator audits show names them"
    return PlanFinding(topic, "audit", level, text, advice)


def gaps(facts: Facts) -> Iterable[PlanFinding]:
    """Records that the copy passed over since the last comparison."""
    text = "nothing was passed over since the last audit"
    return or_ok(_gaps(facts), "gaps", str(facts.route), text)


def _gaps(facts: Facts) -> Iterator[PlanFinding]:
    for partition, passed in sorted(_passed(facts).items()):
        reason, first, next_, at_ms = max(passed, key=lambda gap: gap[3])
        standing = facts.standings.get(partition.key)
        if standing is not None and standing.verified_ms and at_ms <= standing.verified_ms:
            continue
        text = f"offsets {first} to {next_} were passed over at {_time(at_ms)}: {reason}"
        advice = "have it compared: ureplicator audits request says what the target lacks"
        place = f"{partition.topic}/{partition.number}"
        yield PlanFinding(place, "gaps", Level.WARNING, text, advice)


_Passed = tuple[str, int, int, int]
"""Reason, both offsets, and the time."""


def _passed(facts: Facts) -> dict[Partition, list[_Passed]]:
    """Gaps in the history, and those that workers report and no leader has logged yet."""
    found: dict[Partition, list[_Passed]] = {}
    chosen = set(facts.partitions())
    for event in past_events(facts.snapshot.history):
        if event.kind is EventKind.GAP and event.partition in chosen:
            gap = (event.reason, event.first_offset or 0, event.next_offset or 0, event.wall_ms)
            found.setdefault(event.partition, []).append(gap)
    for partition in chosen:
        for entry in facts.view.of(partition).values():
            if entry.gap is not None:
                passed = entry.gap
                gap = (passed.reason, passed.first_offset, passed.next_offset, passed.wall_ms)
                found.setdefault(partition, []).append(gap)
    return found


def offsets(facts: Facts) -> Iterable[PlanFinding]:
    """Topics that are to have the same offsets, and do not; nothing where no topic is."""
    settings = facts.routes.get(facts.route)
    same = [topic for topic in facts.plan.topics if settings and settings.has_same_offsets(topic)]
    if not same:
        return []
    text = f"{counted(len(same), 'topic')} with the same offsets at both ends"
    return or_ok(_shifted(facts, set(same)), "offsets", str(facts.route), text)


def _shifted(facts: Facts, same: set[str]) -> Iterator[PlanFinding]:
    for partition in facts.partitions():
        if partition.topic not in same:
            continue
        for worker in facts.view.of(partition):
            load = facts.snapshot.loads.get(worker, {}).get(partition)
            if load is not None and load.offsets is not None and load.offsets.shift:
                shift = load.offsets
                text = f"offsets are shifted by {shift.shift} from {shift.since} on: {shift.reason}"
                place = f"{partition.topic}/{partition.number}"
                advice = (
                    "groups are moved by the offset map; whoever keeps offsets has to translate"
                )
                yield PlanFinding(place, "offsets", Level.WARNING, text, advice)


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms // 1_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
