"""Checks of those who write the topics: open transactions, and producers of the last minutes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ureplicator_common.kafka import PartitionUnavailable
from ureplicator_common.kafka.transactions.writers import TopicTransaction, TransactionKind
from ureplicator_controller.core.cutover.facts import Facts, Level, PlanFinding, counted, or_ok
from ureplicator_controller.core.cutover.plan import listed

LONG_MS = 10_000
"""A transaction that is open for so long may well be open when the fence is raised."""
INTERNAL = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


def transactions(facts: Facts) -> Iterable[PlanFinding]:
    """Transactions that are open on the topics."""
    count = len(facts.writers.transactions.found)
    text = f"{counted(count, 'transaction')} open, none for long, and none on other topics"
    return or_ok(_transactions(facts), "transactions", facts.route.source, text)


def _transactions(facts: Facts) -> Iterator[PlanFinding]:
    check = "transactions"
    for reason in facts.writers.transactions.unknown:
        text = f"there may be open transactions: {reason}"
        yield PlanFinding(facts.route.source, check, Level.WARNING, text)
    for transaction in facts.writers.transactions.found:
        owner = transaction.transactional_id or f"producer id {transaction.producer_id}"
        others = sorted(transaction.topics - facts.plan.topics.keys() - INTERNAL)
        if others:
            text = f"its transaction has records of {listed(others)}, which stay"
            advice = "topics that share transactions move together: add them"
            yield PlanFinding(owner, check, Level.BLOCKS, text, advice)
        yield from _lasting(facts, owner, transaction)


def _lasting(facts: Facts, owner: str, transaction: TopicTransaction) -> Iterator[PlanFinding]:
    age_ms = facts.now_ms - transaction.began_ms
    is_long = transaction.began_ms >= 0 and age_ms >= LONG_MS
    is_lost = transaction.kind in (TransactionKind.HANGING, TransactionKind.HIDDEN)
    if not (is_long or is_lost):
        return
    since = f" for {age_ms // 1_000} s" if is_long else ""
    text = f"a transaction is {transaction.kind}{since} on {listed(sorted(transaction.topics))}"
    advice = "draining waits for its end: end its producer, or have transactions aborted"
    if facts.plan.aborts_transactions:
        advice = "it is aborted behind the fence"
    if transaction.kind is TransactionKind.HIDDEN:
        advice = "give the fleet DESCRIBE on transactional ids: it cannot be aborted as it is"
    yield PlanFinding(owner, "transactions", Level.WARNING, text, advice)


def producers(facts: Facts) -> Iterable[PlanFinding]:
    """Producers that have written lately, and those of them that write other topics, too."""
    yield from _unknown(facts)
    seen = facts.writers.topics_of
    inside = {id: topics & facts.plan.topics.keys() for id, topics in seen.items()}
    names = [facts.writers.name(id) for id, topics in sorted(inside.items()) if topics]
    text = "no idempotent producer has written in the last minutes; others leave no trace"
    if names:
        text = (
            f"{counted(len(names), 'producer')} have written in the last minutes: {listed(names)}"
        )
        text = text.replace("1 producer have", "1 producer has")
    yield PlanFinding(facts.route.source, "producers", Level.OK, text)
    for id, topics in sorted(seen.items()):
        others = sorted(topics - facts.plan.topics.keys())
        if inside[id] and others:
            text = f"it writes {listed(sorted(inside[id]))}, and also {listed(others)}, which stay"
            advice = "move them together, if it is one producer that is to be restarted"
            name = facts.writers.name(id)
            yield PlanFinding(name, "producers", Level.WARNING, text, advice)


def _unknown(facts: Facts) -> Iterator[PlanFinding]:
    unknown: Mapping[str, PartitionUnavailable] = {
        f"{topic}/{number}": found
        for (topic, number), found in facts.writers.producers.items()
        if isinstance(found, PartitionUnavailable) and topic in facts.plan.topics
    }
    for place, reason in sorted(unknown.items()):
        text = f"its producers are not known: {reason}"
        yield PlanFinding(place, "producers", Level.WARNING, text)
