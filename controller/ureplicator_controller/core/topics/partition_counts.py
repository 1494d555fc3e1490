"""Rule for the partition count of a target topic that exists. Pure.

More partitions send keyed records of whoever else writes to a topic to other partitions, and no topic ever
gets fewer. So the count is raised only where the copy gave it:

- of a topic that a route created for this copy;
- of a topic that had all partitions of its source topic when it became the target, and still has: it grows
  with the source.

Any other topic with too few partitions is refused, unless the request says otherwise.
"""

from __future__ import annotations

from ureplicator_common.kafka import TopicInfo
from ureplicator_common.znode_contents import TopicIntent


def may_raise(known: TopicIntent | None, target: TopicInfo) -> bool:
    """Test whether a copy may add partitions to its target topic. `known`: the intent before it grows, None
    of a topic that is not copied yet."""
    if known is None or not _is_same(known.target_topic_id, target.topic_id):
        return False
    return known.target_created or (known.whole and target.partitions >= known.partitions)


def narrow_target(name: str, target: TopicInfo, wanted: int) -> str:
    """Reason to refuse a target topic with too few partitions."""
    return (
        f"target topic {name} exists with {target.partitions} partitions, not {wanted}. More partitions"
        " send keyed records of others who write to it to other partitions, for good. If nobody else does,"
        " add partitions there, or have `topics add` or `topics expand` do it with --raise-partitions"
        " (raisePartitions in the request)"
    )


def _is_same(known: str, found: str) -> bool:
    """Brokers without topic ids have none."""
    return not known or not found or known == found
