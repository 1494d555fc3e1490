"""Offsets of records at the target, beside those at the source: a scan of both logs."""

from __future__ import annotations

from collections import Counter

from ureplicator_testkit.histories.events import READ_UNCOMMITTED
from ureplicator_testkit.records.topics import read_all


def shifts(source: str, target: str, topic: str) -> dict[int, Counter[int]]:
    """Count of each difference of both offsets, by partition. Pairs of key and value are distinct."""
    there = read_all(target, topic, READ_UNCOMMITTED)
    found: dict[int, Counter[int]] = {}
    for number, rows in read_all(source, topic).items():
        places = {(row.key, row.value): row.offset for row in rows}
        found[number] = Counter(row.offset - places[row.key, row.value] for row in there[number])
        assert found[number].total() == len(rows), f"{topic}/{number}"
    return found
