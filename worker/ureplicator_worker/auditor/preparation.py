"""Comparisons of an auditor as AuditRequests: names, delivery, and the settings of both topics.

A route counts as the leader has published it, with what operators have changed since: workers copy by that.
Its file counts until a leader has published the route.

The topics' settings are read for each requested audit and each pass: an operator may have made a topic
compacted since. One client of each cluster describes all topics, some hundred in a call.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from ureplicator_common.audits import RequestedAudit, TopicAudit
from ureplicator_common.audits.ranges import is_of
from ureplicator_common.config.route import RouteConfig
from ureplicator_common.config.settings import Settings
from ureplicator_common.errors import OperatingError
from ureplicator_common.kafka import LogReader, Position, PositionReader, TopicAdmin
from ureplicator_common.kafka.transactions.position_rows import TargetPartition, all_readable
from ureplicator_common.kafka.transactions.visibility import wait_until_visible
from ureplicator_common.model import Route, RouteSettings, TopicKey, position_group
from ureplicator_common.znode_contents import TopicIntent
from ureplicator_worker.audit.core.claims import claim_of
from ureplicator_worker.audit.prepare import (
    CONFIGS_TIMEOUT_S,
    ambiguous,
    held_notes,
    known_topic,
    options_of,
    read,
    transformed,
)
from ureplicator_worker.audit.result import AuditOptions, AuditRequest, PartitionRange

MAX_FINDINGS = 1_000
"""Findings in memory and in the report of an audit; counts are exact."""
BATCH = 200
"""Topics that are described in one call."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic that is compared, as its cluster has it now."""

    id: str
    configs: Mapping[str, str]


Described = Mapping[tuple[str, str], Topic | OperatingError]
"""Cluster and topic -> the topic, or why it is not known."""


class Preparation:
    """`admins`, `positions` and `logs` connect to a cluster by its name. `published`: settings of a route;
    None: a leader has not published it yet."""

    def __init__(
        self,
        *,
        settings: Settings,
        admins: Callable[[str], TopicAdmin],
        positions: Callable[[str], PositionReader],
        logs: Callable[[str], LogReader],
        published: Callable[[Route], RouteSettings | None],
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._fleet = settings.fleet
        self._routes = {config.route: config for config in settings.routes}
        self._bytes_per_s = settings.audit.bytes_per_s
        self._admins, self._positions, self._logs = admins, positions, logs
        self._published = published
        self._pause = pause

    def settings(self, route: Route) -> RouteSettings | None:
        """Settings by which the route is copied; None: the configuration does not have it. Raises
        OperatingError."""
        config = self._routes.get(route)
        return None if config is None else self._published(route) or config.settings

    def requested(self, key: TopicKey, intent: TopicIntent, wanted: RequestedAudit) -> AuditRequest:
        """Raises OperatingError, also if the copy cannot be read up to the positions."""
        topic = intent.target_topic
        stored = self._visible(key, topic, sorted(wanted.ranges))
        ranges = [
            PartitionRange(
                number, range_.next, range_.first, claim=claim_of(stored.get((topic, number)))
            )
            for number, range_ in sorted(wanted.ranges.items())
        ]
        request = self.comparison(
            key,
            intent,
            ranges,
            described=self.described({key: intent}),
            bytes_per_s=wanted.bytes_per_s or self._bytes_per_s,
        )
        return replace(request, notes=tuple(self._held_notes(key, sorted(wanted.ranges))))

    def _held_notes(self, key: TopicKey, numbers: Sequence[int]) -> Iterator[str]:
        with closing(self._logs(key.route.source)) as logs:
            found = logs.extents({key.topic: numbers})
        yield from held_notes({number: extent for (_, number), extent in found.items()})

    def _visible(
        self, key: TopicKey, target_topic: str, numbers: Sequence[int]
    ) -> Mapping[TargetPartition, Position]:
        """Positions, once the copy can be read up to them."""
        group = position_group(fleet=self._fleet, route=key.route)
        with closing(self._positions(key.route.target)) as positions:
            stored = all_readable(positions.read(group, {target_topic: numbers}))
        with closing(self._logs(key.route.target)) as logs:
            wait_until_visible(stored, logs, pause=self._pause)
        return stored

    def described(self, topics: Mapping[TopicKey, TopicIntent]) -> Described:
        """Both topics of each; what cannot be read is an error of the topics concerned."""
        names: dict[str, set[str]] = {}
        for key, intent in topics.items():
            names.setdefault(key.route.source, set()).add(key.topic)
            names.setdefault(key.route.target, set()).add(intent.target_topic)
        found: dict[tuple[str, str], Topic | OperatingError] = {}
        for cluster, wanted in names.items():
            found |= self._described(cluster, sorted(wanted))
        return found

    def _described(
        self, cluster: str, topics: Sequence[str]
    ) -> Mapping[tuple[str, str], Topic | OperatingError]:
        found: dict[tuple[str, str], Topic | OperatingError] = {}
        try:
            with closing(self._admins(cluster)) as admin:
                for first in range(0, len(topics), BATCH):
                    batch = topics[first : first + BATCH]
                    found |= {(cluster, t): result for t, result in _batch(admin, cluster, batch)}
        except OperatingError as error:
            return {(cluster, topic): error for topic in topics} | found
        return found

    def comparison(
        self,
        key: TopicKey,
        intent: TopicIntent,
        ranges: Sequence[PartitionRange],
        *,
        described: Described,
        bytes_per_s: int,
        round_s: float = 15.0,
    ) -> AuditRequest:
        """Raises OperatingError: a topic is not known."""
        target_topic = intent.target_topic
        settings = self.settings(key.route)
        source = read(described[key.route.source, key.topic])
        target = read(described[key.route.target, target_topic])
        options = options_of(
            AuditOptions(rate_bytes_per_s=bytes_per_s, max_findings=MAX_FINDINGS, round_s=round_s),
            settings or RouteSettings(),
            source.configs,
            target.configs,
        )
        return AuditRequest(
            route=str(key.route),
            topic=key.topic,
            target_topic=target_topic,
            partitions=tuple(ranges),
            options=options,
            not_comparable=not_comparable(settings, key) or ambiguous(options),
            source_topic_id=source.id,
            target_topic_id=target.id,
        )


def _batch(
    admin: TopicAdmin, cluster: str, topics: Sequence[str]
) -> Iterator[tuple[str, Topic | OperatingError]]:
    """Raises OperatingError: the cluster does not respond."""
    infos = admin.find(topics)
    settings = admin.effective_configs(list(infos), timeout_s=CONFIGS_TIMEOUT_S) if infos else {}
    for topic in topics:
        try:
            info = known_topic(infos.get(topic), topic, cluster)
            yield topic, Topic(info.topic_id, read(settings[topic]))
        except OperatingError as error:
            yield topic, error


def not_comparable(settings: RouteSettings | None, key: TopicKey) -> str:
    """Reason why source and target are not meant to be equal; "" if they are."""
    if settings is None:
        return f"route {key.route} is not in the configuration of this auditor"
    return transformed(settings, key.topic)


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
