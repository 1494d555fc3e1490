"""What a fleet was told, as one document, and how a fleet is told it again. Pure.

The document holds what operators decided and what cannot be found out anew: topics with their state,
blacklists, the live switches, and the workers that were set aside. It holds nothing that the leader
decides (ideal states, assignments) and no positions: those are in Kafka, under the fleet's name.

Two facts of a topic decide where copying begins when its nodes are lost. `initialPartitions`: only
those begin at the route's `start`, later ones at their first record. `hadPosition`: a partition in it
whose position is gone too is an ERROR, and not a new beginning. Hence both are in the document, and
restoring never takes a mark away: it is worse to forget that there was a position than to ask.

The clusters' own ids of both topics are there too: a topic that was recreated since is noticed, stopped
and not mixed with the former one. A topic that was stopped stays so until an operator resumes it.

Restoring is a wish about what is there, so doing it twice is doing it once. A topic that is there and
that nobody ever held, as one just whitelisted by itself, becomes what the document says. Of any other,
what would change the meaning of positions that are in use (another target topic, another beginning) is
refused, and the rest is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import Any

from ureplicator_common.model import IdealTopic, KnownWorker, TopicIntent, TopicKey, TopicState
from ureplicator_controller.core.state.snapshot import Snapshot

VERSION = 1


_IDS = ("sourceTopicId", "targetTopicId")
_HINT = "delete the topic, and import again when it is gone; or export again"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A field that cannot be restored onto what is there: what is wrong, and what would help."""

    field: str
    detail: str
    hint: str


@dataclass(frozen=True, slots=True)
class RestoredIntent:
    """What a topic's intent becomes, as far as it can."""

    intent: TopicIntent
    refused: tuple[Refusal, ...] = ()


def backup_document(snapshot: Snapshot) -> dict[str, Any]:
    """The document. Topics that are being deleted are not in it."""
    topics: dict[str, dict[str, Any]] = {}
    for key, stored in sorted(snapshot.topics.items()):
        if stored.value.state is not TopicState.DELETING:
            entry = topic_entry(stored.value, key.topic)
            topics.setdefault(str(key.route), {})[key.topic] = entry
    return {
        "version": VERSION,
        "fleet": snapshot.fleet,
        "switches": {
            "autoBalancing": snapshot.switches.auto_balancing,
            "frozen": snapshot.switches.frozen,
        },
        "workers": {
            str(worker): worker_entry(stored.value)
            for worker, stored in sorted(snapshot.known.items())
            if stored.value.blacklisted or stored.value.draining
        },
        "blacklist": {
            route: [key.topic for key in keys] for route, keys in _by_route(snapshot.blacklist)
        },
        "topics": topics,
    }


def _by_route(keys: Iterable[TopicKey]) -> Iterator[tuple[str, list[TopicKey]]]:
    for route, found in groupby(sorted(keys), key=lambda key: key.route):
        yield str(route), list(found)


def topic_entry(intent: TopicIntent, topic: str) -> dict[str, Any]:
    return {
        "partitions": intent.partitions,
        "initialPartitions": intent.initial_partitions,
        "state": intent.state.value,
        "blacklisted": ranges(intent.blacklisted),
        "hadPosition": ranges(intent.had_position),
        "targetTopic": intent.target_topic or topic,
        "lane": intent.lane,
        "whole": intent.whole,
        "sourceTopicId": intent.source_topic_id,
        "targetTopicId": intent.target_topic_id,
        "restarted": intent.restarted,
        "stopped": intent.stopped,
    }


def worker_entry(known: KnownWorker) -> dict[str, Any]:
    return {
        "slots": known.max_slots,
        "blacklisted": known.blacklisted,
        "draining": known.draining,
    }


def was_never_held(there: TopicIntent | None, ideal: IdealTopic | None) -> bool:
    """Whether nobody can have begun to copy the topic since it was whitelisted."""
    entries = ideal.entries.values() if ideal else ()
    owned = any(entry.worker is not None or entry.holders for entry in entries)
    return there is not None and not there.had_position and not owned


def restored_intent(
    there: TopicIntent | None, wanted: TopicIntent, topic: str, *, never_held: bool
) -> RestoredIntent:
    """What a topic's intent becomes, and what of the entry it cannot become."""
    if there is None:
        return RestoredIntent(wanted)
    assert there.state is not TopicState.DELETING
    refused = tuple(_refused(there, wanted, topic, never_held=never_held))
    return RestoredIntent(
        _as_new(there, wanted) if never_held else _applied(there, wanted, refused), refused
    )


def _as_new(there: TopicIntent, wanted: TopicIntent) -> TopicIntent:
    """As if it had not been there; only its target is claimed already."""
    return replace(
        wanted,
        target_topic=there.target_topic,
        lane=there.lane,
        source_topic_id=wanted.source_topic_id or there.source_topic_id,
        target_topic_id=wanted.target_topic_id or there.target_topic_id,
        forget_positions=there.forget_positions,
        request_id=there.request_id,
    )


def _applied(there: TopicIntent, wanted: TopicIntent, refused: Iterable[Refusal]) -> TopicIntent:
    """Marks are of a topic, not of a name: those of a former one say nothing of this one."""
    fields = {refusal.field for refusal in refused}
    is_former = not fields.isdisjoint(("sourceTopicId", "targetTopicId"))
    return replace(
        there,
        partitions=max(there.partitions, wanted.partitions),
        state=wanted.state,
        blacklisted=wanted.blacklisted,
        had_position=there.had_position | (frozenset() if is_former else wanted.had_position),
        whole=there.whole if "partitions" in fields else wanted.whole,
        source_topic_id=there.source_topic_id or wanted.source_topic_id,
        target_topic_id=there.target_topic_id or wanted.target_topic_id,
    )


def _refused(
    there: TopicIntent, wanted: TopicIntent, topic: str, *, never_held: bool
) -> Iterator[Refusal]:
    fixed: list[tuple[str, object, object]] = [
        ("targetTopic", there.target_topic or topic, wanted.target_topic or topic),
        ("lane", there.lane, wanted.lane),
    ]
    if not never_held:
        fixed += [
            ("initialPartitions", there.initial_partitions, wanted.initial_partitions),
            ("sourceTopicId", there.source_topic_id, wanted.source_topic_id),
            ("targetTopicId", there.target_topic_id, wanted.target_topic_id),
        ]
    for field, here, asked in fixed:
        known = field not in _IDS or (here and asked)
        if known and here != asked:
            detail = (
                f"it is {here} here, not {asked}, and cannot be changed while the topic is there"
            )
            yield Refusal(field, detail, _HINT)
    if wanted.partitions < there.partitions and not never_held:
        detail = f"there are {there.partitions} already, they cannot become {wanted.partitions}"
        yield Refusal("partitions", detail, "export again")


def differences(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> Iterator[str]:
    """For people: what an entry would change, field by field."""
    for field, value in after.items():
        if before is None:
            yield f"{field}: {_shown(value)}"
        elif before[field] != value:
            yield f"{field}: {_shown(before[field])} -> {_shown(value)}"


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value) or "none"


def ranges(numbers: Iterable[int]) -> str:
    """{0, 1, 2, 5} -> "0-2,5": short, and a line that one can compare."""
    ordered = sorted(numbers)
    breaks = [i for i, (a, b) in enumerate(pairwise(ordered), 1) if b != a + 1]
    spans = [ordered[i:j] for i, j in pairwise([0, *breaks, len(ordered)]) if i < j]
    return ",".join(str(s[0]) if len(s) == 1 else f"{s[0]}-{s[-1]}" for s in spans)


def numbers(text: str, *, below: int) -> frozenset[int]:
    """The reverse of `ranges`. Raises ValueError, also for a number that is not below `below`."""
    found: set[int] = set()
    for span in text.split(",") if text else ():
        first, dash, last = span.partition("-")
        begin, end = int(first), int(last if dash else first)
        if not begin <= end < below:
            raise ValueError(f"{span} is no range of numbers from 0 to {below - 1}")
        found.update(range(begin, end + 1))
    return frozenset(found)
