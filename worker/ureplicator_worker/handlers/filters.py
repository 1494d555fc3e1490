"""Shipped handlers that copy only some records: by the key, or by a header.

handler: "ureplicator_worker.handlers.filters:by_key"
args: {pattern: "eu-.*"}
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from ureplicator_worker.handlers import Handler, Output, Record


class Filter(Handler):
    """Copies the records that are `wanted`."""

    def __init__(self, wanted: Callable[[Record], bool]) -> None:
        self._wanted = wanted

    def handle(self, record: Record) -> Iterable[Record | Output]:
        return (record,) if self._wanted(record) else ()


def by_key(pattern: str, drop: bool = False) -> Handler:
    """Records whose whole key matches the pattern; with `drop` the others. No key counts as empty."""
    compiled = re.compile(pattern.encode(), re.DOTALL)
    return Filter(lambda record: bool(compiled.fullmatch(record.key or b"")) is not drop)


def by_header(name: str, pattern: str = ".*", drop: bool = False) -> Handler:
    """Records with a header of this name whose whole value matches; with `drop` the others."""
    compiled = re.compile(pattern.encode(), re.DOTALL)

    def matches(record: Record) -> bool:
        return any(
            known == name and compiled.fullmatch(value or b"") for known, value in record.headers
        )

    return Filter(lambda record: matches(record) is not drop)
