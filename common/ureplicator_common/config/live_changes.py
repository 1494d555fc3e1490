"""Changes of a route's settings: as they are stored, and one after the other."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ureplicator_common.config.section import Fault, Faults

LIVE_SETTINGS = (
    "delivery",
    "start",
    "on_gap",
    "abort_on_send_failure",
    "publish_to_source",
    "verify_crc",
    "offset_map",
    "offsets",
    "naming",
    "auto_whitelist",
    "auto_expand",
    "workers",
)

SECTIONS = ("offsets", "naming", "auto_whitelist", "workers")

Changes = Mapping[str, Any]


def decoded_changes(text: str) -> Changes:
    """Changes as they are stored. Raises Faults."""
    try:
        changes = json.loads(text or "{}")
    except ValueError as error:
        raise Faults([Fault("", f"no JSON: {error}")]) from error
    if not isinstance(changes, dict):
        raise Faults([Fault("", "expected an object")])
    return changes


def readable_changes(text: str) -> Changes:
    """Changes as `decoded_changes` has them, none of a text that another version has written and this
    one cannot read."""
    try:
        return decoded_changes(text)
    except Faults:
        return {}


def encoded_changes(changes: Changes) -> str:
    return json.dumps(changes, sort_keys=True, separators=(",", ":"))


def merged_changes(before: Changes, given: Changes) -> dict[str, Any]:
    """The changes after others. None removes a setting, or a field of a section: the file's counts again."""
    after = dict(before)
    for key, value in given.items():
        if key in SECTIONS and isinstance(value, Mapping):
            own = after.get(key)
            section = {**own, **value} if isinstance(own, Mapping) else dict(value)
            value = {name: field for name, field in section.items() if field is not None} or None
        after[key] = value
    return {key: value for key, value in after.items() if value is not None}
