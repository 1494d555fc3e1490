"""Check of the limits of target topics for records, for REST and for the leader.

A topic that existed before it became a target has the limits that its cluster gave it. That is shown, and
nothing is changed: its settings are the operator's. The check never refuses a request. A cluster that
does not respond in time, or does not describe a topic, leaves topics unchecked, with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping

from ureplicator_common.errors import OperatingError
from ureplicator_common.kafka import TopicAdmin
from ureplicator_controller.core.topics.target_limits import limit_findings

TOPIC_TIMEOUT_S = 2.0
"""Time for the settings of one topic on one cluster: whitelisting waits for them."""


def topic_warnings(
    topic: str, target_topic: str, *, source: TopicAdmin, target: TopicAdmin
) -> tuple[str, ...]:
    """Findings of one target topic, or the reason why it was not checked."""
    findings, unchecked = check_limits(
        {topic: target_topic}, source=source, target=target, timeout_s=TOPIC_TIMEOUT_S
    )
    return (*findings.get(topic, ()), *filter(None, [unchecked]))


def check_limits(
    targets: Mapping[str, str], *, source: TopicAdmin, target: TopicAdmin, timeout_s: float
) -> tuple[Mapping[str, tuple[str, ...]], str]:
    """Source topic -> findings of its target topic, for those of `targets` (source -> target topic) that
    have any; and why topics were not checked ("": all were).

    Each cluster has `timeout_s` to respond.
    """
    try:
        given = source.effective_configs(sorted(targets), timeout_s=timeout_s)
        there = target.effective_configs(sorted(targets.values()), timeout_s=timeout_s)
    except OperatingError as error:
        return {}, f"limits for records were not checked: {error}"
    findings: dict[str, tuple[str, ...]] = {}
    errors: list[str] = []
    for topic, name in sorted(targets.items()):
        ours, theirs = given[topic], there[name]
        if isinstance(ours, OperatingError):
            errors.append(f"source topic {topic}: {ours}")
        elif isinstance(theirs, OperatingError):
            errors.append(f"target topic {name}: {theirs}")
        elif found := limit_findings(name, source=ours, target=theirs):
            findings[topic] = found
    return findings, _unchecked(errors)


def _unchecked(errors: list[str]) -> str:
    if not errors:
        return ""
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return f"limits for records were not checked: {errors[0]}{more}"
