"""What audits say of the topics of a cutover, up to the ends that it has drained. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ureplicator_common.audits import TopicAudit
from ureplicator_common.cutovers import Offsets


class Verification(NamedTuple):
    """`text`: what was compared; `behind`: partitions that were not compared up to their ends; `differs`:
    topics whose copies differ."""

    text: str
    behind: tuple[str, ...]
    differs: tuple[str, ...]


def verification(ends: Offsets, audits: Mapping[str, TopicAudit]) -> Verification:
    """`audits`: by topic, those of the topics as they are now."""
    behind: list[str] = []
    differs: list[str] = []
    for topic, of_topic in ends.items():
        audit = audits.get(topic, TopicAudit())
        if audit.differences:
            counts = ", ".join(f"{count} {kind}" for kind, count in audit.differences.items())
            differs.append(f"{topic}: {counts}")
        for number, end in enumerate(of_topic):
            verified = audit.partitions.get(number)
            reached = verified.next if verified is not None else 0
            if reached < end:
                behind.append(f"{topic}/{number}: compared up to {reached} of {end}")
    partitions = sum(map(len, ends.values()))
    text = f"{partitions - len(behind)} of {partitions} partitions are compared up to their ends"
    return Verification(text, tuple(behind), tuple(differs))
