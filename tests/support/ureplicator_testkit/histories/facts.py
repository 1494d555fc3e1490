"""A history by subject: what was sent, the whole logs, and what each reader observed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, assert_never

from ureplicator_testkit.histories.events import (
    READ_COMMITTED,
    Acknowledged,
    Commits,
    Ended,
    Event,
    Fault,
    Positions,
    Read,
    Seen,
    Sent,
)
from ureplicator_testkit.records.commits import CommittedOffset

Log = Mapping[int, Sequence[Seen]]
Place = tuple[int, int]
"""Partition, and number."""


class View(NamedTuple):
    """Records of a cluster ("source" or "target") that are read at an isolation level."""

    end: str
    isolation: str = READ_COMMITTED


Observation = Mapping[int, Sequence[Seen]] | Positions


@dataclass(slots=True)
class Facts:
    """`logs`: the whole logs. `observed`: by reader, in order."""

    sent: set[Place] = field(default_factory=set)
    acknowledged: set[Place] = field(default_factory=set)
    aborted: set[Place] = field(default_factory=set)
    logs: dict[View, Log] = field(default_factory=dict)
    observed: dict[tuple[View, str], list[Observation]] = field(default_factory=dict)
    commits: Sequence[CommittedOffset] = ()


def facts_of(events: Iterable[Event]) -> Facts:
    facts = Facts()
    open_transactions: defaultdict[int, set[Place]] = defaultdict(set)
    for event in events:
        match event:
            case Sent(numbers, transaction):
                facts.sent |= _places(numbers)
                if transaction is not None:
                    open_transactions[transaction] |= _places(numbers)
            case Acknowledged(numbers):
                facts.acknowledged |= _places(numbers)
            case Ended(transaction, committed):
                if not committed:
                    facts.aborted |= open_transactions[transaction]
            case Read():
                _add_read(facts, event)
            case Positions(reader):
                facts.observed.setdefault((View("target"), reader), []).append(event)
            case Commits(commits):
                facts.commits = commits
            case Fault():
                pass
            case _:
                assert_never(event)
    return facts


def _add_read(facts: Facts, read: Read) -> None:
    view = View(read.end, read.isolation)
    if read.whole:
        facts.logs[view] = read.records
    else:
        facts.observed.setdefault((view, read.reader), []).append(read.records)


def _places(numbers: Mapping[int, Sequence[int]]) -> set[Place]:
    return {(partition, number) for partition, some in numbers.items() for number in some}
