"""Events of a history, and their form in its file: one JSON list a line, the event's name first."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

from ureplicator_testkit.records.commits import CommittedOffset

READ_COMMITTED = "read_committed"
READ_UNCOMMITTED = "read_uncommitted"
UNNAMED = -1
"""Number of a record that does not name the partition where it was read."""

Numbers = Mapping[int, Sequence[int]]
"""Partition -> numbers of records, each once in the partition."""


class Seen(NamedTuple):
    """A record that was read. `digest`: of key, value, headers and time."""

    offset: int
    number: int
    digest: int


@dataclass(frozen=True, slots=True)
class Sent:
    """Given to a producer at the source. `transaction`: its number, if it was sent in one."""

    numbers: Numbers
    transaction: int | None = None
    at_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """Acknowledged by the source: outside of a transaction, or by the commit of it."""

    numbers: Numbers
    at_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Ended:
    """A transaction of the producer at the source."""

    transaction: int
    committed: bool
    at_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Read:
    """Records in the order in which `reader` found them at `end` ("source" or "target").

    `whole`: every record of the log, from its beginning, once nothing moves any more.
    """

    end: str
    reader: str
    isolation: str
    records: Mapping[int, Sequence[Seen]]
    whole: bool = False
    at_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Positions:
    """Stable positions that `reader` found, after all that it has read so far."""

    reader: str
    offsets: Mapping[int, int]
    at_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Commits:
    """Every commit of positions that the target has accepted."""

    commits: Sequence[CommittedOffset]
    at_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Fault:
    """An injected fault, or its end. For people: the judge needs no excuse."""

    name: str
    at_s: float = 0.0


Event = Sent | Acknowledged | Ended | Read | Positions | Commits | Fault


def encode(event: Event) -> str:
    values = [getattr(event, field.name) for field in fields(event)]
    if isinstance(event, Commits):
        values[0] = [(c.partition, c.offset, c.owner_epoch, c.worker) for c in event.commits]
    return json.dumps([type(event).__name__, *values], separators=(",", ":"))


def decode(line: str) -> Event:
    name, *values = json.loads(line)
    match name:
        case "Sent":
            return Sent(_by_partition(values[0]), *values[1:])
        case "Acknowledged":
            return Acknowledged(_by_partition(values[0]), *values[1:])
        case "Ended":
            return Ended(*values)
        case "Read":
            end, reader, isolation, records, whole, at_s = values
            seen = {int(n): tuple(Seen(*row) for row in some) for n, some in records.items()}
            return Read(end, reader, isolation, seen, whole, at_s)
        case "Positions":
            reader, offsets, at_s = values
            return Positions(reader, {int(n): offset for n, offset in offsets.items()}, at_s)
        case "Commits":
            return Commits(tuple(CommittedOffset(*row) for row in values[0]), values[1])
        case "Fault":
            return Fault(*values)
    raise ValueError(f"no event of a history: {name}")


def _by_partition(numbers: Mapping[str, Sequence[int]]) -> Numbers:
    return {int(partition): tuple(some) for partition, some in numbers.items()}
