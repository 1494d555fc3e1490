"""Comparisons of an auditor as AuditRequests: names, delivery, and the settings of both topics.

The topics' settings are read for each comparison: an operator may have made a topic compacted since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing

from ureplicator_common.audits import RequestedAudit, TopicAudit
from ureplicator_common.audits.ranges import is_of
from ureplicator_common.config.route import RouteConfig
from ureplicator_common.config.settings import Settings
from ureplicator_common.contents import TopicIntent
from ureplicator_common.kafka import TopicAdmin
from ureplicator_common.model import Route, RouteSettings, TopicKey
from ureplicator_worker.audit.prepare import ambiguous, configs, options_of, transformed
from ureplicator_worker.audit.result import AuditOptions, AuditRequest, PartitionRange

MAX_FINDINGS = 1_000
"""In memory and in the report of an audit; counts are exact."""


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
        options = options_of(
            AuditOptions(rate_bytes_per_s=bytes_per_s, max_findings=MAX_FINDINGS, round_s=round_s),
            config.settings if config else RouteSettings(),
            self._configs(key.route.source, key.topic),
            self._configs(key.route.target, target_topic),
        )
        return AuditRequest(
            route=str(key.route),
            topic=key.topic,
            target_topic=target_topic,
            partitions=tuple(ranges),
            options=options,
            not_comparable=not_comparable(config, key) or ambiguous(options),
        )

    def _configs(self, cluster: str, topic: str) -> Mapping[str, str]:
        with closing(self._admins(cluster)) as admin:
            return configs(admin, topic)


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
