"""Limits of a target topic for records, compared with those of its source topic. Pure.

A record that the source accepted and the target refuses (INVALID_TIMESTAMP, MESSAGE_TOO_LARGE) stops its
partition. The settings that decide, as a broker describes them with its defaults:

* `message.timestamp.before.max.ms`: any limit at the target is too strict, also one that the source has:
  records grow older there before they are copied.
* `message.timestamp.after.max.ms`: too strict if it is lower than at the source. By default an hour on
  brokers of 4.0 and later, none before. Records that the source stamped itself are not ahead.
* `message.timestamp.difference.max.ms`, until 4.0: counts for a side whose own setting has no limit, or does
  not exist (before 3.6).
* `message.timestamp.type`: a target that stamps records itself applies no limit to their time.
* `max.message.bytes`: of a batch. Too strict if it is lower than at the source.

And what changes or deletes records that were copied:

* `message.timestamp.type`: a target that stamps records itself replaces their time.
* `cleanup.policy`: a target that compacts keeps only the newest record of each key, and refuses those
  without; one that deletes by age or size does not keep what the source only compacts.
* `retention.ms`, `retention.bytes`: shorter than at the source, where both delete by age or size.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

NO_LIMIT_MS = 2**63 - 1

LIFETIME = frozenset(
    {
        "cleanup.policy",
        "retention.ms",
        "retention.bytes",
        "delete.retention.ms",
        "min.compaction.lag.ms",
        "max.compaction.lag.ms",
    }
)
"""Settings that decide how long records live: a target topic has the values in force at the source."""

Settings = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Limit:
    setting: str
    value: int


def limit_findings(target_topic: str, *, source: Settings, target: Settings) -> tuple[str, ...]:
    """One sentence for each setting of the target topic to raise: its value, and the value to set."""
    found: dict[str, str] = {}

    def find(limit: _Limit, accepted: int, refused: str) -> None:
        if limit.value < accepted and limit.setting not in found:
            found[limit.setting] = (
                f"target topic {target_topic}: {limit.setting} is {limit.value}, it refuses {refused}"
                f" (set it to {accepted})"
            )

    if not _stamps(target):
        find(_time_limit(target, "before"), NO_LIMIT_MS, "records that are older")
        ahead_ms = 0 if _stamps(source) else _time_limit(source, "after").value
        find(_time_limit(target, "after"), ahead_ms, "records that are further ahead of its clock")
    if "max.message.bytes" in source and "max.message.bytes" in target:
        find(
            _limit(target, "max.message.bytes"), int(source["max.message.bytes"]), "larger batches"
        )
    return (*found.values(), *_changed_records(target_topic, source, target))


def _changed_records(target_topic: str, source: Settings, target: Settings) -> Iterator[str]:
    """Sentences for what the target does to records that it took."""
    name = f"target topic {target_topic}"
    if _stamps(target):
        yield (
            f"{name}: message.timestamp.type is LogAppendTime, it replaces the time of records"
            " (set it to CreateTime)"
        )
    for setting, wanted in shortened(source, target):
        yield (
            f"{name}: {setting} is {target[setting]}, it deletes records that the source keeps"
            f" (set it to {wanted})"
        )


def shortened(source: Settings, target: Settings) -> Iterator[tuple[str, str]]:
    """Settings by which the target deletes what the source keeps, and the value to set."""
    kept, deletes = _policies(source), _policies(target)
    if deletes - kept:
        yield "cleanup.policy", ",".join(sorted(kept))
    if "delete" not in kept & deletes:
        return
    for setting in ("retention.ms", "retention.bytes"):
        wanted = _retention(source, setting)
        if _retention(target, setting) < wanted:
            yield setting, "-1" if wanted == NO_LIMIT_MS else str(wanted)


def _policies(settings: Settings) -> set[str]:
    """Ways in which a topic's brokers delete records."""
    return {*filter(None, settings.get("cleanup.policy", "delete").split(","))}


def _retention(settings: Settings, setting: str) -> int:
    """Limit of age or size; negative values are none."""
    limit = int(settings.get(setting, -1))
    return limit if limit >= 0 else NO_LIMIT_MS


def _stamps(settings: Settings) -> bool:
    return settings.get("message.timestamp.type") == "LogAppendTime"


def _time_limit(settings: Settings, side: str) -> _Limit:
    own = _limit(settings, f"message.timestamp.{side}.max.ms")
    both = _limit(settings, "message.timestamp.difference.max.ms")
    return own if own.value < NO_LIMIT_MS else both


def _limit(settings: Settings, setting: str) -> _Limit:
    return _Limit(setting, int(settings.get(setting, NO_LIMIT_MS)))
