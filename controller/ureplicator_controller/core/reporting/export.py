"""Export of what operators decided, as one document, and its import. Pure.

The document holds what cannot be found out again: topics with their state, blacklists, the live switches,
and drained or blacklisted workers. It does not hold what the leader decides (ideal states, assignments),
nor positions: those are in Kafka, under the fleet's name.

Two fields of a topic decide where copying starts when its nodes are lost. `initialPartitions`: only those
start at the route's `start`, later ones at their first record. `hadPosition`: if a partition in it has no
position, it is in ERROR instead of starting over. Hence both are in the document, and an import never
removes a mark: losing the mark of a position is worse than an ERROR that operators resolve.

The document also has the clusters' ids of both topics: a topic that was recreated since is noticed,
stopped, and not mixed with the former one. A stopped topic stays stopped until an operator resumes it.

An import is idempotent. A topic that exists and that no worker ever held, such as one that was just
whitelisted automatically, becomes what the document has. For any other topic, changes that would alter the
meaning of positions in use (another target topic, another start) are refused, and the rest is applied.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import Any

from ureplicator_common.config.live_changes import readable_changes
from ureplicator_common.kafka import TopicInfo
from ureplicator_common.model import TopicKey, TopicState
from ureplicator_common.znode_contents import IdealTopic, KnownWorker, Switches, TopicIntent
from ureplicator_controller.core.state.snapshot import Snapshot

VERSION = 1


_IDS = ("sourceTopicId", "targetTopicId")
_HINT = "delete the topic and import again when it is gone, or export again"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A field that cannot be imported onto the existing topic: the reason, and a hint."""

    field: str
    detail: str
    hint: str


@dataclass(frozen=True, slots=True)
class ImportedIntent:
    """A topic's intent after the import, and the fields that were refused."""

    intent: TopicIntent
    refused: tuple[Refusal, ...] = ()


def export_document(snapshot: Snapshot) -> dict[str, Any]:
    """Create the document, without topics that are being deleted."""
    topics: dict[str, dict[str, Any]] = {}
    for key, stored in sorted(snapshot.topics.items()):
        if stored.value.state is not TopicState.DELETING:
            entry = topic_entry(stored.value)
            topics.setdefault(str(key.route), {})[key.topic] = entry
    return {
        "version": VERSION,
        "fleet": snapshot.fleet,
        "switches": switches_entry(snapshot.switches),
        "workers": {
            str(worker): worker_entry(stored.value)
            for worker, stored in sorted(snapshot.known.items())
            if stored.value.is_drained
        },
        "blacklist": {
            route: [key.topic for key in keys] for route, keys in _by_route(snapshot.blacklist)
        },
        "topics": topics,
    }


def _by_route(keys: Iterable[TopicKey]) -> Iterator[tuple[str, list[TopicKey]]]:
    for route, of_route in groupby(sorted(keys), key=lambda key: key.route):
        yield str(route), list(of_route)


def topic_entry(intent: TopicIntent) -> dict[str, Any]:
    return {
        "partitions": intent.partitions,
        "initialPartitions": intent.initial_partitions,
        "state": intent.state.value,
        "blacklisted": ranges(intent.blacklisted),
        "hadPosition": ranges(intent.had_position),
        "targetTopic": intent.target_topic,
        "whole": intent.whole,
        "sourceTopicId": intent.source_topic_id,
        "targetTopicId": intent.target_topic_id,
        "targetCreated": intent.target_created,
        "restarted": intent.restarted,
        "stopped": intent.stopped,
    }


def switches_entry(switches: Switches) -> dict[str, Any]:
    return {
        "autoBalancing": switches.auto_balancing,
        "frozen": switches.frozen,
        "pausedRoutes": sorted(map(str, switches.paused_routes)),
        "limits": {str(limited): rate for limited, rate in sorted(switches.limits.items())},
        "routeSettings": {
            str(route): changes
            for route, text in sorted(switches.route_settings.items())
            if (changes := readable_changes(text))
        },
    }


def worker_entry(known: KnownWorker) -> dict[str, Any]:
    return {
        "slots": known.max_slots,
        "blacklisted": known.blacklisted,
        "draining": known.draining,
    }


def wanted_intent(
    current: TopicIntent | None, given: Mapping[str, Any], source: TopicInfo | None
) -> TopicIntent:
    """The intent that an entry asks for. `given`: fields of `TopicIntent` that the entry has.

    Other fields stay as they are. Those of a new topic are as if it were added by hand: all partitions of
    the source, from the route's `start`. `source` is required for a new topic.
    """
    if current is not None:
        return replace(current, **given)
    assert source is not None
    partitions = given.get("partitions", source.partitions)
    added = {
        "partitions": partitions,
        "initial_partitions": partitions,
        "whole": partitions == source.partitions,
        "restarted": True,
        "source_topic_id": source.topic_id,
    }
    return TopicIntent(**(added | dict(given)))


def was_never_held(current: TopicIntent | None, ideal: IdealTopic | None) -> bool:
    """Test that no worker can have started to copy the topic since it was whitelisted."""
    entries = ideal.entries.values() if ideal else ()
    owned = any(entry.worker is not None or entry.holders for entry in entries)
    return current is not None and not current.had_position and not owned


def imported_intent(
    current: TopicIntent | None, wanted: TopicIntent, *, never_held: bool
) -> ImportedIntent:
    """Apply an entry of an export to a topic's intent as far as possible."""
    if current is None:
        return ImportedIntent(wanted)
    assert current.state is not TopicState.DELETING
    refused = tuple(_refused(current, wanted, never_held=never_held))
    return ImportedIntent(
        _as_new(current, wanted) if never_held else _applied(current, wanted, refused), refused
    )


def _as_new(current: TopicIntent, wanted: TopicIntent) -> TopicIntent:
    """Replace the intent; only the claimed target topic stays."""
    return replace(
        wanted,
        target_topic=current.target_topic,
        source_topic_id=wanted.source_topic_id or current.source_topic_id,
        target_topic_id=wanted.target_topic_id or current.target_topic_id,
        target_created=wanted.target_created or current.target_created,
        forget_positions=current.forget_positions,
        positions=current.positions,
        request_id=current.request_id,
    )


def _applied(current: TopicIntent, wanted: TopicIntent, refused: Iterable[Refusal]) -> TopicIntent:
    """Update the intent. `hadPosition` belongs to a topic id: a former topic's is not applied."""
    fields = {refusal.field for refusal in refused}
    is_former = not fields.isdisjoint(("sourceTopicId", "targetTopicId"))
    return replace(
        current,
        partitions=max(current.partitions, wanted.partitions),
        state=wanted.state,
        blacklisted=wanted.blacklisted,
        had_position=current.had_position | (frozenset() if is_former else wanted.had_position),
        whole=current.whole if "partitions" in fields else wanted.whole,
        source_topic_id=current.source_topic_id or wanted.source_topic_id,
        target_topic_id=current.target_topic_id or wanted.target_topic_id,
    )


def _refused(current: TopicIntent, wanted: TopicIntent, *, never_held: bool) -> Iterator[Refusal]:
    fixed: list[tuple[str, object, object]] = [
        ("targetTopic", current.target_topic, wanted.target_topic),
    ]
    if not never_held:
        fixed += [
            ("initialPartitions", current.initial_partitions, wanted.initial_partitions),
            ("sourceTopicId", current.source_topic_id, wanted.source_topic_id),
            ("targetTopicId", current.target_topic_id, wanted.target_topic_id),
        ]
    for field, here, given in fixed:
        known = field not in _IDS or (here and given)
        if known and here != given:
            detail = f"it is {here} here, not {given}, and cannot be changed while the topic exists"
            yield Refusal(field, detail, _HINT)
    if wanted.partitions < current.partitions and not never_held:
        detail = (
            f"the topic has {current.partitions} already, which cannot become {wanted.partitions}"
        )
        yield Refusal("partitions", detail, "export again")


def differences(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> Iterator[str]:
    """Changes that an entry would make, field by field, for display."""
    for field, value in after.items():
        if before is None:
            yield f"{field}: {_shown(value)}"
        elif before[field] != value:
            yield f"{field}: {_shown(before[field])} -> {_shown(value)}"


def _shown(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(value) or "none"
    if isinstance(value, dict):
        return ", ".join(f"{key} {of_key}" for key, of_key in value.items()) or "none"
    return str(value).lower() if isinstance(value, bool) else str(value) or "none"


def ranges(numbers: Iterable[int]) -> str:
    """Compact notation: {0, 1, 2, 5} -> "0-2,5"."""
    ordered = sorted(numbers)
    breaks = [i for i, (a, b) in enumerate(pairwise(ordered), 1) if b != a + 1]
    spans = [ordered[i:j] for i, j in pairwise([0, *breaks, len(ordered)]) if i < j]
    return ",".join(str(s[0]) if len(s) == 1 else f"{s[0]}-{s[-1]}" for s in spans)


def numbers(text: str, *, below: int) -> frozenset[int]:
    """Parse the notation of `ranges`. Raises ValueError, also for a number that is not below `below`."""
    found: set[int] = set()
    for span in text.split(",") if text else ():
        first, dash, last = span.partition("-")
        begin, end = int(first), int(last if dash else first)
        if not begin <= end < below:
            raise ValueError(f"{span} is not a range of numbers from 0 to {below - 1}")
        found.update(range(begin, end + 1))
    return frozenset(found)
