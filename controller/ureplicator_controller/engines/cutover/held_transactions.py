"""Transactions that hold the ends of fenced topics: named with their owners and ages, and aborted on request.

A fence keeps producers from writing, and not from ending a transaction. So an open one gets time to end by
itself, before it is aborted.
"""

from __future__ import annotations

from collections.abc import Iterable

from ureplicator_common.cutovers import Cutover
from ureplicator_common.kafka.transactions.writers import TopicTransaction, Writers

GRACE_S = 1.0
"""Time from the beginning of the fence in which a transaction may end by itself."""


def release(writers: Writers, cutover: Cutover, topics: Iterable[str], now_ms: int) -> list[str]:
    """What holds the ends of these topics, in words, after what is to be aborted was. Raises
    ClusterUnavailable."""
    found = writers.transactions_on(sorted(topics))
    is_due = now_ms - cutover.fenced_ms >= GRACE_S * 1_000
    aborts = cutover.plan.aborts_transactions and is_due
    failed = writers.abort(found.found, now_ms=now_ms) if aborts else {}
    texts = [
        f"{_named(each, now_ms)}{f': {failed[each]}' if each in failed else ''}"
        for each in found.found
    ]
    return [*texts, *found.unknown]


def _named(transaction: TopicTransaction, now_ms: int) -> str:
    topics = ", ".join(sorted(transaction.topics))
    age = (
        ""
        if transaction.began_ms < 0
        else f" since {(now_ms - transaction.began_ms) / 1_000:.0f} s"
    )
    return f"{transaction} is {transaction.kind}{age} on {topics}"
