"""Shipped handler that copies to other topics, by a pattern for the name of the source topic.

handler: "ureplicator_worker.handlers.rename:topics"
args: {pattern: "(.*)-v1", replacement: "\\\\1"}
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ureplicator_worker.handlers import Handler, Output, Record


class Rename(Handler):
    """Names are computed once for each topic."""

    def __init__(self, pattern: str, replacement: str) -> None:
        self._pattern = re.compile(pattern)
        self._replacement = replacement
        self._names: dict[str, str | None] = {}

    def handle(self, record: Record) -> Iterable[Record | Output]:
        if record.topic not in self._names:
            matching = self._pattern.fullmatch(record.topic)
            self._names[record.topic] = matching.expand(self._replacement) if matching else None
        name = self._names[record.topic]
        return (record,) if name is None else (record.output(topic=name),)


def topics(pattern: str, replacement: str) -> Handler:
    """Records of topics whose whole name matches go to `replacement`, in which `\\1` is the first group;
    those of others stay. The topics must exist on the target."""
    return Rename(pattern, replacement)
