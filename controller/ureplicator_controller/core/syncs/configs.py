"""Settings of a target topic compared with those of its source topic. Pure.

| setting                                        | wanted at the target                              |
|------------------------------------------------|---------------------------------------------------|
| `compression.type`                             | `producer`: batches are passed on as they are     |
| `message.timestamp.type`                       | `CreateTime`: records keep their time             |
| `message.timestamp.{before,after}.max.ms`      | no limit: what the source accepted is accepted    |
| `max.message.bytes`                            | at least what the source accepts, never lowered   |
| settings for the lifetime of records           | the value in force at the source, if it is set on |
|                                                | either topic, or the target keeps records shorter |
| any other that is set on the source topic      | the value of the source                           |
| any other that is set on the target topic only | its brokers' default, unless it equals the source |

What is a default on both sides is the choice of each cluster's operators and not compared, except for the
settings that copying needs, and for a shorter lifetime, which deletes what the source keeps. With
`use_defaults_from: source` the source's default is wanted, too, as if it were set on the source topic.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ureplicator_common.errors import OperatingError
from ureplicator_common.kafka import TopicInfo, TopicSetting
from ureplicator_common.model import DefaultsFrom
from ureplicator_controller.core.syncs.topics import SyncedTopic
from ureplicator_controller.core.topics.target_limits import (
    LIFETIME,
    NO_LIMIT_MS,
    limit_findings,
    shortened,
)

NEEDED: Mapping[str, str] = {
    "compression.type": "producer",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": str(NO_LIMIT_MS),
    "message.timestamp.after.max.ms": str(NO_LIMIT_MS),
    "message.timestamp.difference.max.ms": str(NO_LIMIT_MS),
}
"""Settings that copying needs at the target, whatever the source has."""
SIZE_LIMIT = "max.message.bytes"
NOT_ENABLED = "sync_topic_configs is not enabled"
EXCLUDED = "excluded by sync_topic_configs.exclude"
NOT_THERE = "the target's brokers have no such setting"

Settings = Mapping[str, TopicSetting]


@dataclass(frozen=True, slots=True)
class Side:
    """A topic as one cluster shows it; `info` None: there is none."""

    info: TopicInfo | None
    settings: Settings | OperatingError


@dataclass(frozen=True, slots=True)
class SettingDifference:
    """`source`, `target`: values with the brokers' defaults, None: no such setting there. `wanted`: the value
    to set, None: the target topic's own is removed. `kept`: why nothing is changed, or ""."""

    name: str
    source: str | None
    target: str | None
    wanted: str | None
    kept: str = ""


@dataclass(frozen=True, slots=True)
class TopicDrift:
    """Differences of a topic between its clusters; `reason`: why it was not compared, or "". `harm`: how the
    target's settings refuse, change or delete records."""

    topic: SyncedTopic
    source_partitions: int = 0
    target_partitions: int = 0
    settings: tuple[SettingDifference, ...] = ()
    harm: tuple[str, ...] = ()
    reason: str = ""

    @property
    def has_any(self) -> bool:
        return bool(
            self.reason or self.settings or self.source_partitions != self.target_partitions
        )

    @property
    def changes(self) -> dict[str, str | None]:
        """Settings to change at the target, and their values."""
        return {setting.name: setting.wanted for setting in self.settings if not setting.kept}


@dataclass(frozen=True, slots=True)
class ConfigRules:
    """`exclude`: settings that are never changed; `is_enabled`: whether any is; `defaults_from`: the cluster
    whose defaults a target topic has where its source topic has no setting of its own."""

    is_enabled: bool
    exclude: Sequence[str]
    defaults_from: DefaultsFrom = DefaultsFrom.TARGET

    def kept(self, setting: str) -> str:
        """Reason why a setting that differs is not changed, or ""."""
        if not self.is_enabled:
            return NOT_ENABLED
        is_excluded = any(re.fullmatch(pattern, setting) for pattern in self.exclude)
        return EXCLUDED if is_excluded else ""


def topic_drift(
    topic: SyncedTopic, source: Side, target: Side, *, rules: ConfigRules
) -> TopicDrift:
    """Differences of one topic between its two sides."""
    reason = _unlike(f"source topic {topic.source}", source, topic.source_id)
    reason = reason or _unlike(f"target topic {topic.target}", target, topic.target_id)
    if reason:
        return TopicDrift(topic, reason=reason)
    assert source.info
    assert target.info
    assert not isinstance(source.settings, OperatingError)
    assert not isinstance(target.settings, OperatingError)
    return TopicDrift(
        topic,
        source_partitions=source.info.partitions,
        target_partitions=target.info.partitions,
        settings=differences(source.settings, target.settings, rules=rules),
        harm=limit_findings(
            topic.target, source=_values(source.settings), target=_values(target.settings)
        ),
    )


def _unlike(name: str, side: Side, id: str) -> str:
    """Reason why a side cannot be compared, or "". A topic of another id is not the one that is copied."""
    if side.info is None:
        return f"{name} does not exist"
    if side.info.error:
        return f"{name}: {side.info.error}"
    if id and side.info.topic_id and side.info.topic_id != id:
        return f"{name} was recreated"
    return f"{name}: {side.settings}" if isinstance(side.settings, OperatingError) else ""


def differences(
    source: Settings, target: Settings, *, rules: ConfigRules
) -> tuple[SettingDifference, ...]:
    """Settings that differ, by name."""
    return tuple(
        SettingDifference(
            name=name,
            source=_value(source, name),
            target=_value(target, name),
            wanted=wanted,
            kept=rules.kept(name) if name in target else NOT_THERE,
        )
        for name, wanted in _wanted(source, target, rules.defaults_from)
    )


def _wanted(
    source: Settings, target: Settings, defaults_from: DefaultsFrom
) -> Iterator[tuple[str, str | None]]:
    """Settings that differ, and the value to set at the target; None: its own is to be removed."""
    has_all = defaults_from is DefaultsFrom.SOURCE
    own = {name for side in (source, target) for name, setting in side.items() if setting.is_own}
    compared = own | (source.keys() if has_all else _shortened(source, target))
    for name in sorted(compared | NEEDED.keys() | {SIZE_LIMIT}):
        here, there = source.get(name), target.get(name)
        if name in NEEDED:
            if there is not None and there.value != NEEDED[name]:
                yield name, NEEDED[name]
        elif name == SIZE_LIMIT:
            if here is not None and there is not None and int(there.value) < int(here.value):
                yield name, here.value
        elif here is not None and (there is None or here.value != there.value):
            is_synced = here.is_own or has_all or name in LIFETIME
            yield name, here.value if is_synced else None


def _shortened(source: Settings, target: Settings) -> set[str]:
    """Settings by which the target deletes what the source keeps."""
    return {name for name, _ in shortened(_values(source), _values(target))}


def _values(settings: Settings) -> dict[str, str]:
    return {name: setting.value for name, setting in settings.items()}


def _value(settings: Settings, name: str) -> str | None:
    found = settings.get(name)
    return None if found is None else found.value
