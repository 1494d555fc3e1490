"""Intents compared with the topics that exist on the two Kafka clusters of a route.

uReplicator's terms: a topic is *missing* if the source has no topic of that name, and *mismatched* if it
has another number of partitions; `mismatchedTopicPartitions` then has the difference. A topic that the source
does not describe is neither: it is a finding, with the brokers' error. The target is
compared as well, as findings for operators: a partition without its counterpart there cannot be copied.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ureplicator_common.kafka import TopicInfo
from ureplicator_common.model import TopicState
from ureplicator_common.znode_contents import TopicIntent


@dataclass(frozen=True, slots=True)
class ClusterComparison:
    """Differences of one route. `mismatched`: topic -> partitions by which source and intent differ.

    `source_findings`: topic -> why the source does not describe it. `target_findings`: source topic -> defect
    of its target topic. `stopped`: topic -> reason.
    """

    missing: tuple[str, ...] = ()
    mismatched: Mapping[str, int] = field(default_factory=dict)
    source_findings: Mapping[str, str] = field(default_factory=dict)
    target_findings: Mapping[str, str] = field(default_factory=dict)
    stopped: Mapping[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, object]:
        """uReplicator's field names, and the findings at the source."""
        return {
            "numMissingTopics": len(self.missing),
            "numMismatchedTopics": len(self.mismatched),
            "numMismatchedTopicPartitions": sum(self.mismatched.values()),
            "mismatchedTopicPartitions": dict(sorted(self.mismatched.items())),
            "sourceFindings": dict(self.source_findings),
        }


def compare_with_clusters(
    intents: Mapping[str, TopicIntent],
    source_topics: Mapping[str, TopicInfo],
    target_topics: Mapping[str, TopicInfo] | None,
) -> ClusterComparison:
    """Compare the intents of one route, by source topic. Topics being deleted are left out.

    `target_topics`: None while the target is unavailable, then there are no findings.
    """
    compared = {
        topic: intent
        for topic, intent in sorted(intents.items())
        if intent.state is not TopicState.DELETING
    }
    mismatched = {
        topic: abs(source_topics[topic].partitions - intent.partitions)
        for topic, intent in compared.items()
        if (there := source_topics.get(topic)) is not None
        and not there.error
        and there.partitions != intent.partitions
    }
    return ClusterComparison(
        missing=tuple(topic for topic in compared if topic not in source_topics),
        mismatched=mismatched,
        source_findings={
            topic: f"source: {there.error}"
            for topic in compared
            if (there := source_topics.get(topic)) is not None and there.error
        },
        target_findings={}
        if target_topics is None
        else {
            topic: finding
            for topic, intent in compared.items()
            if (finding := _target_finding(intent, target_topics))
        },
        stopped={topic: intent.stopped for topic, intent in compared.items() if intent.stopped},
    )


def _target_finding(intent: TopicIntent, target_topics: Mapping[str, TopicInfo]) -> str:
    """Defect of a target topic; "" if it has none."""
    name = intent.target_topic
    found = target_topics.get(name)
    if found is None:
        return f"the target has no topic {name}"
    if found.error:
        return f"target topic {name}: {found.error}"
    if found.partitions < intent.partitions:
        return f"target topic {name} has {found.partitions} of {intent.partitions} partitions"
    return ""
