"""Why nobody should copy a partition, in the words that operators read: the plan gives them as reasons,
and what shows the fleet tells with them what rests by intent from what fails.

Where several words hold, the first of: topic deleted, stopped, paused, blacklisted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ureplicator_common.model import Partition, Route, TopicIntent, TopicKey, TopicState
from ureplicator_controller.core.state.snapshot import Snapshot

PAUSED = "paused"
BLACKLISTED = "blacklisted"
DELETING = "topic deleted"
STOPPED = "stopped: "


@dataclass(frozen=True, slots=True)
class ExcludedPartitions:
    """The partitions of one topic that nobody should copy for one reason.

    `state` is the reason in one word: paused, blacklisted or stopped.
    """

    key: TopicKey
    partitions: tuple[int, ...]
    state: str
    reason: str


def exclusion_reason(intent: TopicIntent | None, number: int, *, listed: bool = False) -> str:
    """Why nobody should copy a partition; "" if somebody should. `listed`: its topic is."""
    if intent is None or intent.state is TopicState.DELETING or number >= intent.partitions:
        return DELETING
    if intent.stopped:
        return f"{STOPPED}{intent.stopped}"
    if intent.state is TopicState.PAUSED:
        return PAUSED
    return BLACKLISTED if listed or number in intent.blacklisted else ""


def partition_exclusion(snapshot: Snapshot, partition: Partition) -> str:
    """The same of a partition of the fleet."""
    stored = snapshot.topics.get(partition.key)
    intent = stored.value if stored else None
    return exclusion_reason(intent, partition.number, listed=partition.key in snapshot.blacklist)


def exclusion_kind(reason: str) -> str:
    """The first word: what the counts go by."""
    return reason.partition(":")[0]


def effective_state(snapshot: Snapshot, key: TopicKey) -> str:
    """What a topic is, whatever operators wished: `TopicState`'s words, stopped, or blacklisted."""
    intent = snapshot.topics[key].value
    if intent.state is TopicState.DELETING:
        return intent.state.value
    whole = replace(intent, blacklisted=frozenset())
    why = exclusion_reason(whole, 0, listed=key in snapshot.blacklist)
    return exclusion_kind(why) or intent.state.value


def excluded_partitions(snapshot: Snapshot, route: Route | None = None) -> list[ExcludedPartitions]:
    """What nobody should copy of the topics that stay, in order; of one route or of all."""
    found: list[ExcludedPartitions] = []
    for key in sorted(snapshot.topics):
        intent = snapshot.topics[key].value
        if intent.state is TopicState.DELETING or route not in (None, key.route):
            continue
        numbers: dict[str, list[int]] = {}
        for number in range(intent.partitions):
            why = exclusion_reason(intent, number, listed=key in snapshot.blacklist)
            if why:
                numbers.setdefault(why, []).append(number)
        found += [
            ExcludedPartitions(key, tuple(each), exclusion_kind(why), why)
            for why, each in numbers.items()
        ]
    return found
