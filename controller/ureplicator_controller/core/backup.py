"""What a fleet was told, as one document, and how a fleet is told it again. Pure.

The document holds what operators decided and what cannot be found out anew: topics with their state,
blacklists, the live switches, and the workers that were set aside. It holds nothing that the leader
decides (ideal states, assignments) and no positions: those are in Kafka, under the fleet's name.

Two facts of a topic decide where copying begins when its nodes are lost. `initialPartitions`: only
those begin at the route's `start`, later ones at their first record. `hadPosition`: a partition in it
whose position is gone too is an ERROR, and not a new beginning. Hence both are in the document, and
restoring never takes a mark away: it is worse to forget that there was a position than to ask.

The clusters' own ids of both topics are there too: a topic that was made anew since is noticed, stopped
and not mixed with the former one. A topic that was stopped stays so until an operator resumes it.

Restoring is a wish about what is there, so doing it twice is doing it once. What would change the
meaning of positions that are in use (another target topic, another beginning) is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import groupby, pairwise
from typing import Any

from ureplicator_common.model import KnownWorker, TopicIntent, TopicKey, TopicState
from ureplicator_controller.core.snapshot import Snapshot

VERSION = 1


class Refused(Exception):
    """An entry that cannot be restored onto what is there: the field, what is wrong, what would help."""

    def __init__(self, field: str, detail: str, cure: str) -> None:
        super().__init__(detail)
        self.field = field
        self.detail = detail
        self.cure = cure


def exported(snapshot: Snapshot) -> dict[str, Any]:
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
        "beginsAnew": intent.begins_anew,
        "stopped": intent.stopped,
    }


def worker_entry(known: KnownWorker) -> dict[str, Any]:
    return {
        "slots": known.max_slots,
        "blacklisted": known.blacklisted,
        "draining": known.draining,
    }


def restored(there: TopicIntent | None, wanted: TopicIntent, topic: str) -> TopicIntent:
    """What a topic's intent becomes. Raises Refused."""
    if there is None:
        return wanted
    if there.state is TopicState.DELETING:
        raise Refused("topic", f"{topic} is being deleted", "import it again when it is gone")
    _refuse_other("targetTopic", there.target_topic or topic, wanted.target_topic or topic)
    _refuse_other("lane", there.lane, wanted.lane)
    _refuse_other("initialPartitions", there.initial_partitions, wanted.initial_partitions)
    for field, here, asked in (
        ("sourceTopicId", there.source_topic_id, wanted.source_topic_id),
        ("targetTopicId", there.target_topic_id, wanted.target_topic_id),
    ):
        if here and asked:
            _refuse_other(field, here, asked)
    if wanted.partitions < there.partitions:
        raise Refused(
            "partitions",
            f"there are {there.partitions} already, they cannot become {wanted.partitions}",
            "export anew",
        )
    return replace(
        there,
        partitions=wanted.partitions,
        state=wanted.state,
        blacklisted=wanted.blacklisted,
        had_position=there.had_position | wanted.had_position,
        whole=wanted.whole,
        source_topic_id=there.source_topic_id or wanted.source_topic_id,
        target_topic_id=there.target_topic_id or wanted.target_topic_id,
    )


def _refuse_other(field: str, there: object, wanted: object) -> None:
    if there != wanted:
        raise Refused(
            field,
            f"it is {there} here, not {wanted}, and cannot be changed while the topic is there",
            "delete the topic first, or export anew",
        )


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
