"""Checks of the copy: topics, partitions and their states, lag, and settings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ureplicator_common.model import Partition, PartitionState, TopicKey, TopicState
from ureplicator_common.znode_contents import CurrentEntry, PartitionLoad
from ureplicator_controller.core.cutover.facts import Facts, Level, PlanFinding, counted, or_ok
from ureplicator_controller.core.cutover.plan import listed
from ureplicator_controller.core.state.exclusions import effective_state, partition_exclusion
from ureplicator_controller.core.syncs.configs import TopicDrift

SLOW_DRAIN_S = 10.0
"""Draining of this length is worth a warning: clients are kept from writing all the while."""
NO_PROGRESS_S = 60.0
"""A worker says within ten seconds that it makes progress; what makes none for so long does not drain."""


def topics(facts: Facts) -> Iterable[PlanFinding]:
    """Topics that the patterns stand for, and their states."""
    partitions = sum(facts.plan.topics.values())
    text = f"{counted(len(facts.plan.topics), 'topic')} with {counted(partitions, 'partition')}"
    return or_ok([*_patterns(facts), *_states(facts)], "topics", str(facts.route), text)


def _patterns(facts: Facts) -> Iterator[PlanFinding]:
    for pattern in facts.unmatched:
        text = f"no topic of {facts.route} has such a name, or its clients have left it already"
        advice = "look at the list of topics"
        yield PlanFinding(pattern, "topics", Level.BLOCKS, text, advice)


def _inactive(facts: Facts) -> Mapping[str, str]:
    """Topics that are not copied, and their states."""
    states = {
        topic: effective_state(facts.snapshot, TopicKey(facts.route, topic))
        for topic in facts.plan.topics
    }
    return {topic: state for topic, state in states.items() if state != TopicState.ACTIVE}


def _states(facts: Facts) -> Iterator[PlanFinding]:
    for topic, state in _inactive(facts).items():
        stopped = facts.intents[topic].stopped
        reason = f": {stopped}" if stopped else ""
        advice = "resume it, or leave it out"
        if state == TopicState.REVERSED:
            advice = f"its clients are at {facts.route.target} already: leave it out"
        yield PlanFinding(topic, "topics", Level.BLOCKS, f"it is {state}{reason}", advice)


def online(facts: Facts) -> Iterable[PlanFinding]:
    """Partitions that nobody copies."""
    named = set(_inactive(facts))
    active = [partition for partition in facts.partitions() if partition.topic not in named]
    text = f"{counted(len(active), 'partition')} ONLINE"
    found = (_offline(facts, partition) for partition in active)
    return or_ok(filter(None, found), "online", str(facts.route), text)


def _offline(facts: Facts, partition: Partition) -> PlanFinding | None:
    reported = facts.view.of(partition).values()
    if any(entry.state is PartitionState.ONLINE for entry in reported):
        return None
    place = f"{partition.topic}/{partition.number}"
    excluded = partition_exclusion(facts.snapshot, partition)
    if excluded:
        advice = "what it holds is not copied: resume it, or leave the topic out"
        return PlanFinding(place, "online", Level.BLOCKS, f"it is {excluded}", advice)
    return PlanFinding(
        place, "online", Level.BLOCKS, _state_text(list(reported)), "wait until it is ONLINE"
    )


def _state_text(reported: Sequence[CurrentEntry]) -> str:
    if not reported:
        return "no worker copies it"
    entry = reported[0]
    return f"{entry.state}: {entry.reason}" if entry.reason else str(entry.state)


def partitions(facts: Facts) -> Iterable[PlanFinding]:
    """Numbers of partitions at both ends."""
    found = (
        finding
        for drift in facts.drift
        if not drift.reason
        for finding in _partitions(facts, drift)
    )
    return or_ok(found, "partitions", str(facts.route), "as many at the target as at the source")


def _partitions(facts: Facts, drift: TopicDrift) -> Iterator[PlanFinding]:
    topic, check = drift.topic.source, "partitions"
    copied = facts.plan.topics[topic]
    source, target = drift.source_partitions, drift.target_partitions
    if copied < source:
        text = f"{copied} of {source} partitions are copied"
        advice = "expand the topic on the route"
        yield PlanFinding(topic, check, Level.BLOCKS, text, advice)
    if target < source:
        text = f"the target has {target} partitions, the source {source}"
        yield PlanFinding(topic, check, Level.BLOCKS, text, "add partitions to the target topic")
    elif target > source:
        level = Level.BLOCKS if facts.plan.way_back else Level.WARNING
        text = f"the target has {target} partitions, the source {source}"
        advice = (
            "records of a key go to another partition there: add partitions to the source topic"
        )
        yield PlanFinding(topic, check, level, text, advice)


@dataclass(frozen=True, slots=True)
class Drain:
    """What is left to copy, in records, and the seconds until the slowest partition has reached its end, at
    the rate of now. `unknown`, `stuck`: partitions of which that cannot be said."""

    records: int = 0
    seconds: float = 0.0
    slowest: str = ""
    unknown: tuple[str, ...] = ()
    stuck: tuple[str, ...] = ()


def drain(facts: Facts) -> Drain:
    records, seconds, slowest = 0, 0.0, ""
    unknown: list[str] = []
    stuck: list[str] = []
    for partition in facts.partitions():
        place, load = f"{partition.topic}/{partition.number}", _load(facts, partition)
        if load is None or load.lag < 0:
            unknown.append(place)
            continue
        records += load.lag
        if load.lag and load.no_progress_s >= NO_PROGRESS_S:
            stuck.append(place)
        elif load.lag and not load.records_per_s:
            unknown.append(place)
        elif load.lag and load.lag / load.records_per_s > seconds:
            seconds, slowest = load.lag / load.records_per_s, place
    return Drain(records, seconds, slowest, tuple(unknown), tuple(stuck))


def _load(facts: Facts, partition: Partition) -> PartitionLoad | None:
    """Load of the worker that copies it; None if it has not said any."""
    for worker, entry in facts.view.of(partition).items():
        if entry.state is PartitionState.ONLINE:
            return facts.snapshot.loads.get(worker, {}).get(partition)
    return None


def lag(facts: Facts) -> Iterable[PlanFinding]:
    """Records that are not copied yet, and the time that draining takes."""
    found, subject, check = drain(facts), str(facts.route), "lag"
    if found.stuck:
        text = f"records wait and none is copied for {NO_PROGRESS_S:.0f} s"
        yield PlanFinding(
            listed(found.stuck), check, Level.BLOCKS, text, "find out why: ureplicator diagnose"
        )
    if found.unknown:
        text = "its lag, or the rate of its copy, is not known"
        advice = "workers say it ten seconds after they began"
        yield PlanFinding(listed(found.unknown), check, Level.WARNING, text, advice)
    text = f"{counted(found.records, 'record')} behind, drained in {found.seconds:.1f} s"
    if found.slowest:
        text += f" at the rate of now, {found.slowest} last"
    is_slow = found.seconds > SLOW_DRAIN_S
    advice = "start when less is left: producers are held while it drains" if is_slow else ""
    yield PlanFinding(subject, check, Level.WARNING if is_slow else Level.OK, text, advice)


def settings(facts: Facts) -> Iterable[PlanFinding]:
    """Settings of the target topics that differ."""
    text = "settings are the same at both ends"
    return or_ok(_settings(facts), "settings", str(facts.route), text)


def _settings(facts: Facts) -> Iterator[PlanFinding]:
    for drift in facts.drift:
        topic = drift.topic.source
        if drift.reason:
            yield PlanFinding(topic, "settings", Level.BLOCKS, drift.reason, "see routes drift")
        for text in drift.harm:
            advice = "change it before producers write there, unless they write no such records"
            yield PlanFinding(topic, "settings", Level.WARNING, text, advice)
        for setting in drift.settings if not drift.harm else ():
            text = (
                f"{setting.name} is {setting.source} at the source, {setting.target} at the target"
            )
            advice = setting.kept or "the sync of settings will change it"
            yield PlanFinding(topic, "settings", Level.WARNING, text, advice)
