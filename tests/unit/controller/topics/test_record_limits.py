"""Limits of a target topic for records, compared with those of its source topic."""

from __future__ import annotations

import pytest

from ureplicator_controller.core.topics.target_limits import NO_LIMIT_MS, limit_findings

HOUR_MS = 3_600_000
BEFORE, AFTER = "message.timestamp.before.max.ms", "message.timestamp.after.max.ms"
BOTH, TYPE, BYTES = (
    "message.timestamp.difference.max.ms",
    "message.timestamp.type",
    "max.message.bytes",
)


def settings(
    before: int = NO_LIMIT_MS, after: int = NO_LIMIT_MS, *, stamped: bool = False, **more: int
) -> dict[str, str]:
    """Settings as a broker describes them."""
    text = "LogAppendTime" if stamped else "CreateTime"
    given = {"difference": BOTH, "size": BYTES}
    return {BEFORE: str(before), AFTER: str(after), TYPE: text} | {
        given[name]: str(value) for name, value in more.items()
    }


@pytest.mark.parametrize(
    ("source", "target", "found"),
    [
        (settings(), settings(), {}),
        (settings(), settings(after=HOUR_MS), {AFTER: NO_LIMIT_MS}),
        (settings(after=HOUR_MS), settings(after=HOUR_MS), {}),
        (settings(after=HOUR_MS), settings(after=HOUR_MS - 1), {AFTER: HOUR_MS}),
        (settings(after=HOUR_MS - 1), settings(after=HOUR_MS), {}),
        (settings(stamped=True), settings(after=HOUR_MS), {}),
        (settings(), settings(before=HOUR_MS), {BEFORE: NO_LIMIT_MS}),
        (settings(before=HOUR_MS), settings(before=HOUR_MS), {BEFORE: NO_LIMIT_MS}),
        (settings(stamped=True), settings(before=HOUR_MS), {BEFORE: NO_LIMIT_MS}),
        (settings(), settings(HOUR_MS, 7), {BEFORE: NO_LIMIT_MS, AFTER: NO_LIMIT_MS}),
        ({BOTH: str(NO_LIMIT_MS)}, {BOTH: str(HOUR_MS)}, {BOTH: NO_LIMIT_MS}),
        ({BOTH: str(HOUR_MS)}, settings(after=HOUR_MS), {}),
        (settings(), settings(difference=HOUR_MS), {BOTH: NO_LIMIT_MS}),
        (settings(), settings(before=9, difference=7), {BEFORE: NO_LIMIT_MS, BOTH: NO_LIMIT_MS}),
        ({}, {}, {}),
        (settings(size=10), settings(size=9), {BYTES: 10}),
        (settings(size=9), settings(size=10), {}),
    ],
)
def test_settings_to_raise(
    source: dict[str, str], target: dict[str, str], found: dict[str, int]
) -> None:
    texts = limit_findings("copy", source=source, target=target)
    assert len(texts) == len(found)
    for text, (setting, wanted) in zip(texts, found.items(), strict=True):
        assert text.startswith(f"target topic copy: {setting} is {target[setting]}, it refuses ")
        assert text.endswith(f" (set it to {wanted})")


STAMPED = (
    f"target topic copy: {TYPE} is LogAppendTime, it replaces the time of records"
    " (set it to CreateTime)"
)
"""Finding of a target that stamps records itself."""


def shorter(setting: str, value: int | str, wanted: int | str) -> str:
    return (
        f"target topic copy: {setting} is {value}, it deletes records that the source keeps"
        f" (set it to {wanted})"
    )


@pytest.mark.parametrize(
    ("source", "target", "found"),
    [
        (settings(), settings(HOUR_MS, HOUR_MS, stamped=True), [STAMPED]),
        (settings(stamped=True), settings(stamped=True), [STAMPED]),
        ({"retention.ms": "-1"}, {"retention.ms": "7"}, [shorter("retention.ms", 7, -1)]),
        ({"retention.ms": "9"}, {"retention.ms": "7"}, [shorter("retention.ms", 7, 9)]),
        ({"retention.ms": "7"}, {"retention.ms": "9"}, []),
        ({"retention.ms": "7"}, {"retention.ms": "-1"}, []),
        ({"retention.bytes": "9"}, {"retention.bytes": "0"}, [shorter("retention.bytes", 0, 9)]),
        (
            {"retention.ms": "9"},
            {"retention.ms": "7", "cleanup.policy": "compact"},
            [shorter("cleanup.policy", "compact", "delete")],
        ),
        (
            {"retention.ms": "7", "cleanup.policy": "compact"},
            {"retention.ms": "7", "cleanup.policy": "compact,delete"},
            [shorter("cleanup.policy", "compact,delete", "compact")],
        ),
        ({"cleanup.policy": "compact,delete"}, {"cleanup.policy": "compact"}, []),
    ],
)
def test_targets_that_change_or_delete_what_they_took(
    source: dict[str, str], target: dict[str, str], found: list[str]
) -> None:
    assert list(limit_findings("copy", source=source, target=target)) == found
