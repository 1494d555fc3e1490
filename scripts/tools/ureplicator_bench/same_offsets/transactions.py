"""A topic whose records are in transactions, each of one partition, where it leaves one control record."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle, islice

from confluent_kafka import Producer

from ureplicator_bench.load import Profile, values
from ureplicator_bench.servers import Servers
from ureplicator_testkit.records.topics import QUIET, create_topic, delete_topic

PRODUCERS = 32
"""At once, since each waits for its markers before the next transaction: 8 commit a quarter as many."""
RESPONSE_S = 60.0


@dataclass(frozen=True, slots=True)
class Transactions:
    """`in_each`: records of a transaction; `records`: of all."""

    in_each: int
    records: int

    def profile(self, base: Profile) -> Profile:
        """Topic of at most as many records as this one has, but a transaction of each producer at least; all
        have as many."""
        in_a_round = self.in_each * PRODUCERS
        rounds = max(1, min(self.records, base.records) // in_a_round)
        name = f"{base.name}, transactions of {self.in_each:,}"
        return replace(base, name=name, records=rounds * in_a_round)


TRANSACTIONS = (
    Transactions(10, 200_000),
    Transactions(100, 1_000_000),
    Transactions(1_000, 4_000_000),
)
"""Such that each has a few thousand gaps or more, and a copy takes some seconds."""


@contextmanager
def filled(servers: Servers, wanted: Transactions, profile: Profile) -> Iterator[str]:
    """A topic of the source with the records of `wanted.profile`, deleted in the end."""
    topic, source = f"bench-transactions-{wanted.in_each}", servers.source.bootstrap
    create_topic(source, topic, partitions=profile.partitions)
    with ThreadPoolExecutor(PRODUCERS) as pool:
        list(pool.map(partial(_produce, source, topic, wanted, profile), range(PRODUCERS)))
    yield topic
    delete_topic(source, topic)


def _produce(
    bootstrap: str, topic: str, wanted: Transactions, profile: Profile, number: int
) -> None:
    """The part of one producer, all in one partition."""
    settings = {"transactional.id": f"{topic}-{number}", "compression.type": profile.codec}
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1, **settings, **QUIET})
    producer.init_transactions(RESPONSE_S)
    content = cycle(values(profile.size))
    for _ in range(profile.records // wanted.in_each // PRODUCERS):
        producer.begin_transaction()
        for value in islice(content, wanted.in_each):
            producer.produce(topic, value, partition=number % profile.partitions)
        producer.commit_transaction(RESPONSE_S)
