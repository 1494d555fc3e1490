"""Ideal states to write, and topics to remove once nothing holds them any more.

A deleted topic is revoked from all workers and retired when no live worker holds it. Holders that
never confirmed (dead, or frozen) outlive it in the ideal node (see `Retire`): otherwise a topic
whitelisted again under the same name would be copied beside a frozen process that may resume. The leader
fences and removes those that are gone (`core.positions.remains`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator

from ureplicator_common.model import TopicKey, TopicState
from ureplicator_common.znode_contents import IdealEntry, IdealTopic
from ureplicator_controller.core.planning.handover import Handover
from ureplicator_controller.core.planning.holders import HolderRules
from ureplicator_controller.core.planning.partitions import PartitionView, PartitionViews
from ureplicator_controller.core.planning.steps import Retire, WriteIdeal
from ureplicator_controller.core.state.snapshot import Snapshot


def topic_steps(
    snapshot: Snapshot, views: PartitionViews, *, handover: Handover, reasons: Counter[str]
) -> Iterator[WriteIdeal | Retire]:
    """Write the changed ideal states; retire deleted topics instead where possible."""
    for key, topic in views.by_topic.items():
        intent = snapshot.topics.get(key)
        if intent is None or intent.value.state is TopicState.DELETING:
            retire = _retire(snapshot, key, topic.values(), handover.holder_rules)
            if retire is not None:
                reasons[f"topic {key} retired"] += 1
                yield retire
                continue
        if key in handover.changed:
            stored = snapshot.ideal.get(key)
            version = stored.version if stored else None
            yield WriteIdeal(key, IdealTopic(_entries(topic.values())), version)


def _retire(
    snapshot: Snapshot,
    key: TopicKey,
    topic: Collection[PartitionView],
    holder_rules: HolderRules,
) -> Retire | None:
    """Step that removes the topic; None if it is still held, or there is nothing to remove."""
    intent = snapshot.topics.get(key)
    if intent is not None and intent.value.forget_positions:
        return None  # the positions are deleted first, see `core.positions.deletion`
    for view in topic:
        holders = view.after.holders if view.after else {}
        if view.is_unreadable or view.assigned or holder_rules.live_holders(view, holders):
            return None
    remains = {number: entry for number, entry in _entries(topic).items() if entry.holders}
    stored = snapshot.ideal.get(key)
    before = stored.value.entries if stored else {}
    if intent is None and remains.keys() == before.keys():
        return None
    audit, requested = snapshot.audits.states.get(key), snapshot.audits.requests.get(key)
    return Retire(
        key,
        intent.version if intent else None,
        stored.version if stored else None,
        IdealTopic(remains) if remains else None,
        audit_version=audit.version if audit else None,
        audit_request_version=requested.version if requested else None,
    )


def _entries(topic: Collection[PartitionView]) -> dict[int, IdealEntry]:
    return {view.partition.number: view.after for view in topic if view.after is not None}
