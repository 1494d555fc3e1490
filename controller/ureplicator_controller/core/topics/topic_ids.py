"""Ids of the source and target topic: deleted and recreated topics, and adopting a recreated one.

A name does not identify a topic: a topic that is deleted and recreated has the same name and another id.
So an intent has the ids of both its topics, and whatever has no such id, or another one, is not copied.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ureplicator_common.kafka import TopicInfo
from ureplicator_common.model import TopicKey
from ureplicator_common.znode_contents import TopicIntent

TopicInfos = Mapping[str, TopicInfo]
"""Topics of one cluster by name."""


def stop_reason(
    key: TopicKey, intent: TopicIntent, source: TopicInfos | None, target: TopicInfos | None
) -> str | None:
    """Reason to stop a topic, "" if there is none; None while a cluster's response is missing."""
    name = intent.target_topic
    reasons = (
        source_stop_reason(key, intent, source),
        _stop_reason(f"target topic {name}", intent.target_topic_id, target, name),
    )
    found = next((reason for reason in reasons if reason), "")
    return found or (None if None in reasons else "")


def other_cluster(intent: TopicIntent, cluster_id: str) -> str:
    """Reason to stop a topic since its source is not the cluster that it was copied from, or "".

    What that one has, or lacks, says nothing about the topic. `cluster_id`: of the source, "" if it did not
    respond.
    """
    known = intent.source_cluster_id
    if not known or not cluster_id or known == cluster_id:
        return ""
    return f"the source is another cluster (was {known}, is {cluster_id})"


def source_stop_reason(key: TopicKey, intent: TopicIntent, source: TopicInfos | None) -> str | None:
    """Reason to stop a topic because of its source topic alone."""
    info = source.get(key.topic) if source is not None else None
    if source is not None and info is None:
        return "source topic was deleted"
    return _stop_reason("source topic", intent.source_topic_id, source, key.topic)


def _stop_reason(what: str, id: str, topics: TopicInfos | None, name: str) -> str | None:
    """Compare one topic with its id. A topic that never had an id there was not *deleted*."""
    info = topics.get(name) if topics is not None else None
    if topics is None or (info is not None and info.error):
        return None
    if info is None:
        return f"{what} was deleted" if id else ""
    if id and info.topic_id and id != info.topic_id:
        return f"{what} was recreated (was {id}, is {info.topic_id})"
    return ""


def with_topic_ids(intent: TopicIntent, source: TopicInfo, target: TopicInfo) -> TopicIntent:
    """Add ids that are missing; with the source id also whether all partitions are wanted.

    An intent that has a source id keeps its `whole`. Brokers without topic ids leave it as it is.
    """
    known = replace(intent, target_topic_id=intent.target_topic_id or target.topic_id)
    if known.source_topic_id or not source.topic_id:
        return known
    whole = intent.partitions >= source.partitions
    return replace(known, source_topic_id=source.topic_id, whole=whole)


def adopt_topics(intent: TopicIntent, source: TopicInfo, target_id: str) -> TopicIntent:
    """Continue with the topics that exist now, each partition from its first record.

    Offsets that were requested for the former topics are dropped: they mean other records now.
    """
    count = source.partitions if intent.whole else min(intent.partitions, source.partitions)
    return replace(
        intent,
        partitions=count,
        initial_partitions=0,
        had_position=frozenset(),
        positions={},
        source_topic_id=source.topic_id,
        target_topic_id=target_id,
        source_cluster_id="",
        target_created=intent.target_created and target_id == intent.target_topic_id,
        restarted=True,
        stopped="",
        source_gone_ms=0,
    )
