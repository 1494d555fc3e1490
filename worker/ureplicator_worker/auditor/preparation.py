"""Comparisons of an auditor as AuditRequests: names, delivery, and the settings of both topics.

The topics' settings are read for each comparison: an operator may have made a topic compacted since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

from ureplicator_common.audits import RequestedAudit, TopicAudit
from ureplicator_common.audits.ranges import is_of
from ureplicator_common.config.route import RouteConfig
from ureplicator_common.config.settings import Settings
from ureplicator_common.contents import TopicIntent
from ureplicator_common.kafka import TopicAdmin
from ureplicator_common.model import Route, RouteSettings, TopicKey
from ureplicator_worker.audit.prepare import (
    ambiguous,
    configs,
    found_topic,
    options_of,
    transformed,
)
from ureplicator_worker.audit.result import AuditOptions, AuditRequest, PartitionRange

MAX_FINDINGS = 1_000
"""In memory and in the report of an audit; counts are exact."""


@dataclass(frozen=True, slots=True)
class _Topic:
    """The topic that is compared, as its cluster has it now."""

    id: str
    configs: Mapping[str, str]


class Preparation:
    """`admins` connects to a cluster by its name. Calls may raise ClusterUnavailable."""

    def __init__(self, *, settings: Settings, admins: Callable[[str], TopicAdmin]) -> None:
        self._routes = {config.route: config for config in settings.routes}
        self._bytes_per_s = settings.audit.bytes_per_s
        self._admins = admins

    def requested(self, key: TopicKey, intent: TopicIntent, wanted: RequestedAudit) -> AuditRequest:
        ranges = [
            PartitionRange(number, each.next, each.first)
            for number, each in sorted(wanted.ranges.items())
        ]
        return self.comparison(
            key, intent, ranges, bytes_per_s=wanted.bytes_per_s or self._bytes_per_s
        )

    def comparison(
        self,
        key: TopicKey,
        intent: TopicIntent,
        ranges: Sequence[PartitionRange],
        *,
        bytes_per_s: int,
        round_s: float = 15.0,
    ) -> AuditRequest:
        target_topic = intent.target_topic or key.topic
        config = self._routes.get(key.route)
        source = self._described(key.route.source, key.topic)
        target = self._described(key.route.target, target_topic)
        options = options_of(
            AuditOptions(rate_bytes_per_s=bytes_per_s, max_findings=MAX_FINDINGS, round_s=round_s),
            config.settings if config else RouteSettings(),
            source.configs,
            target.configs,
        )
        return AuditRequest(
            route=str(key.route),
            topic=key.topic,
            target_topic=target_topic,
            partitions=tuple(ranges),
            options=options,
            not_comparable=not_comparable(config, key) or ambiguous(options),
            source_topic_id=source.id,
            target_topic_id=target.id,
        )

    def _described(self, cluster: str, topic: str) -> _Topic:
        with closing(self._admins(cluster)) as admin:
            info = found_topic(admin, topic, cluster)
            return _Topic(info.topic_id, configs(admin, topic))


def not_comparable(config: RouteConfig | None, key: TopicKey) -> str:
    """Reason why source and target are not meant to be equal; "" if they are."""
    if config is None:
        return f"route {key.route} is not in the configuration of this auditor"
    return transformed(config.settings, key.topic)


def continuous_routes(routes: Iterable[RouteConfig]) -> dict[Route, RouteConfig]:
    return {config.route: config for config in routes if config.audit.continuous}


def next_first(
    audit: TopicAudit | None, intent: TopicIntent, number: int
) -> tuple[int, int] | None:
    """Source and target offset at which a comparison goes on; None: the partition was never compared."""
    if audit is None or not is_of(audit, intent.source_topic_id, intent.target_topic_id):
        return None
    verified = audit.partitions.get(number)
    return (verified.next, verified.target_next) if verified else None
