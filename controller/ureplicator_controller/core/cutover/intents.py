"""Intents of a topic's two directions once a cutover is OPEN. Pure.

The former direction is reversed first: workers drain it, commit, and release it. Only then is the other one
made active, from the target's ends at OPEN. So no record that it copies goes round: nobody copies it on.
"""

from __future__ import annotations

from dataclasses import replace

from ureplicator_common.model import TopicState
from ureplicator_common.znode_contents import PositionChange, TopicIntent


def former_direction(intent: TopicIntent) -> TopicIntent:
    """The intent of the direction that is left. A topic that is being deleted stays so."""
    if intent.state is TopicState.DELETING:
        return intent
    return replace(intent, state=TopicState.REVERSED, positions={})


def other_direction(
    before: TopicIntent | None, former: TopicIntent, *, topic: str, ends: tuple[int, ...], run: str
) -> TopicIntent:
    """The intent of the other direction, of which `before` may be left from a former cutover. `topic`: at the
    cluster that clients have left, the target now; `ends`: positions to begin at."""
    count = len(ends)
    is_left = before is not None and before.state is TopicState.REVERSED
    base = before if before is not None and is_left else _new(former, topic=topic, partitions=count)
    return replace(
        base,
        state=TopicState.ACTIVE,
        partitions=max(base.partitions, count),
        positions={number: PositionChange(end, run) for number, end in enumerate(ends)},
    )


def _new(former: TopicIntent, *, topic: str, partitions: int) -> TopicIntent:
    return TopicIntent(
        partitions=partitions,
        initial_partitions=0,
        target_topic=topic,
        source_topic_id=former.target_topic_id,
        target_topic_id=former.source_topic_id,
        whole=former.whole,
        restarted=True,
    )
