"""Settings of target topics: read and compared, for REST and for the leader; changed by the leader.

The leader compares them on every route, also where it is not to change any: a target topic that existed may
refuse, change or delete records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ureplicator_common.config.route import RouteConfig
from ureplicator_common.errors import OperatingError
from ureplicator_common.kafka import TopicAdmin, TopicInfo, TopicRefused, TopicSetting
from ureplicator_common.portions import portions
from ureplicator_common.znode_contents import SyncKind
from ureplicator_controller.core.state.snapshot import Snapshot
from ureplicator_controller.core.syncs.configs import (
    ConfigRules,
    Side,
    TopicDrift,
    topic_drift,
)
from ureplicator_controller.core.syncs.topics import SyncedTopic, synced_topics
from ureplicator_controller.engines.syncs.ends import Ends
from ureplicator_controller.engines.syncs.thread import Term
from ureplicator_controller.engines.syncs.topic_sync import TopicSync, TopicSyncState

PORTION = 500
"""Topics that are read, and changed, with one request each."""
SETTINGS_TIMEOUT_S = 10.0


def config_rules(config: RouteConfig) -> ConfigRules:
    settings = config.sync_topic_configs
    return ConfigRules(
        is_enabled=settings.enabled,
        exclude=settings.exclude,
        defaults_from=settings.use_defaults_from,
    )


def compare_topics(
    topics: Sequence[SyncedTopic], *, source: TopicAdmin, target: TopicAdmin, rules: ConfigRules
) -> list[TopicDrift]:
    """Differences of each topic. Raises ClusterUnavailable."""
    return [
        drift
        for portion in portions(topics, PORTION)
        for drift in _compared(portion, source=source, target=target, rules=rules)
    ]


def _compared(
    topics: Sequence[SyncedTopic], *, source: TopicAdmin, target: TopicAdmin, rules: ConfigRules
) -> list[TopicDrift]:
    here = _sides(source, [topic.source for topic in topics])
    there = _sides(target, [topic.target for topic in topics])
    return [
        topic_drift(topic, here[topic.source], there[topic.target], rules=rules) for topic in topics
    ]


def _sides(admin: TopicAdmin, names: Sequence[str]) -> Mapping[str, Side]:
    infos: Mapping[str, TopicInfo] = admin.find(names)
    settings: Mapping[str, Mapping[str, TopicSetting] | OperatingError] = admin.settings(
        sorted(infos), timeout_s=SETTINGS_TIMEOUT_S
    )
    return {name: Side(infos.get(name), settings.get(name, {})) for name in names}


class ConfigWork:
    """Changes settings of target topics that differ, if the route says so, and finds those that harm.
    `Work` of a sync."""

    kind = SyncKind.CONFIGS

    def __init__(
        self,
        *,
        config: RouteConfig,
        source: Callable[[], TopicAdmin],
        target: Callable[[], TopicAdmin],
    ) -> None:
        self._config = config
        self._ends = Ends(source, target)
        self._rules = config_rules(config)

    def perform(self, snapshot: Snapshot, term: Term) -> Mapping[str, TopicSync]:
        source, target = self._ends.opened()
        outcomes: dict[str, TopicSync] = {}
        config = self._config
        topics = synced_topics(snapshot, config.route)
        for portion in portions(topics, PORTION):
            may_write = term.reading()
            drifts = _compared(portion, source=source, target=target, rules=self._rules)
            outcomes |= change_settings(target, drifts, may_write=may_write)
        return outcomes

    def close(self) -> None:
        self._ends.close()


def change_settings(
    target: TopicAdmin, drifts: Sequence[TopicDrift], *, may_write: Callable[[], bool]
) -> dict[str, TopicSync]:
    """Change what is to be changed; source topic -> outcome. Raises ClusterUnavailable."""
    due = {drift.topic.target: drift.changes for drift in drifts if drift.changes}
    if due and not may_write():
        return {drift.topic.source: _with_harm(_left(drift), drift) for drift in drifts}
    failed = target.alter_settings(due)
    return {
        drift.topic.source: _with_harm(
            _outcome(target, drift, failed.get(drift.topic.target), may_write), drift
        )
        for drift in drifts
    }


def _with_harm(outcome: TopicSync, drift: TopicDrift) -> TopicSync:
    """The outcome with the harm that was found, unless settings were changed: the next round judges those."""
    is_changed = outcome.state is TopicSyncState.CHANGED
    return outcome if is_changed else replace(outcome, harm="; ".join(drift.harm))


def _left(drift: TopicDrift) -> TopicSync:
    """Outcome where nothing was changed."""
    if drift.reason:
        return TopicSync(TopicSyncState.UNKNOWN, drift.reason)
    if drift.changes:
        return TopicSync(TopicSyncState.PENDING)
    if drift.harm:
        return TopicSync(TopicSyncState.HARMFUL, "; ".join(drift.harm))
    return TopicSync(TopicSyncState.EQUAL)


def _outcome(
    target: TopicAdmin,
    drift: TopicDrift,
    failed: OperatingError | None,
    may_write: Callable[[], bool],
) -> TopicSync:
    if drift.reason or not drift.changes:
        return _left(drift)
    if failed is None:
        return TopicSync(TopicSyncState.CHANGED, _text(drift.changes), len(drift.changes))
    if not isinstance(failed, TopicRefused):
        return TopicSync(TopicSyncState.UNKNOWN, str(failed))
    return _one_by_one(target, drift, failed, may_write)


def _one_by_one(
    target: TopicAdmin, drift: TopicDrift, refused: OperatingError, may_write: Callable[[], bool]
) -> TopicSync:
    """A setting that the cluster refuses keeps no other from being changed."""
    name = drift.topic.target
    failed: dict[str, OperatingError] = {}
    for setting, value in drift.changes.items():
        if len(drift.changes) == 1 or not may_write():
            failed[setting] = refused
        else:
            one = target.alter_settings({name: {setting: value}})
            failed |= {setting: one[name]} if name in one else {}
    reasons = [f"{setting} not changed: {error}" for setting, error in failed.items()]
    return TopicSync(
        TopicSyncState.REFUSED if failed else TopicSyncState.CHANGED,
        "; ".join(reasons),
        len(drift.changes) - len(failed),
    )


def _text(changes: Mapping[str, str | None]) -> str:
    return "at the target, " + ", ".join(
        f"{name} removed" if value is None else f"{name} set to {value}"
        for name, value in sorted(changes.items())
    )
