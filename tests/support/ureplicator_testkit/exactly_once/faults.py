"""Faults of a random history, and records between them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from random import Random

from ureplicator_common.kafka.errors import ErrorCode
from ureplicator_common.model import Partition
from ureplicator_testkit.copier.handler_process import processes
from ureplicator_testkit.copier.ledger_fleet import put
from ureplicator_testkit.copier.line import ROUTE
from ureplicator_testkit.copier.transaction_fleet import (
    PARTITIONS,
    PROTOCOLS,
    THREE,
    TransactionFleet,
)
from ureplicator_testkit.kafka.memory_kafka import MemoryKafka
from ureplicator_testkit.records import batches

WORKERS = ("w1", "w2", "w3")
NODES = 2
REQUESTS = ("initialise", "fence", "read", "join", "commit", "commit")
OUTCOMES = ("before", "after", "late")
CODES = (
    ErrorCode.NONE,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.TRANSACTION_ABORTABLE,
    ErrorCode.MESSAGE_TOO_LARGE,
)
AFTER_APPEND = (
    ErrorCode.NONE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)
LIMITS_BYTES = (150, 1_000, 1 << 20)
LIKELY = ("lose", "move", "usurp", "thaw", "arrive")
"""Twice as often as the others."""
REFUSAL = ErrorCode.TOPIC_AUTHORIZATION_FAILED.name
SOURCE_PRODUCERS = (1, 2)
STEPS_EACH = (1, 2, 5, 20)
"""Turns of a worker between two steps of its ownership thread."""


class Faults:
    """`harm` does one of them, `heal` ends all that last."""

    def __init__(self, fleet: TransactionFleet, random: Random) -> None:
        self._fleet = fleet
        self._random = random
        self._kinds: dict[str, Callable[[], None]] = {
            "none": lambda: None,
            "cut": lambda: self._kafka().cut(self._node()),
            "torn": self._tear,
            "silent": lambda: fleet.target.silent.add(self._node()),
            "down": lambda: fleet.target.down.add(self._node()),
            "refuse": lambda: fleet.target.refuse.update({self._key(): self._codes(CODES)}),
            "belated": self._belate,
            "limit": self._limit,
            "move leader": lambda: fleet.target.move(self._key(), self._node()),
            "delay": lambda: fleet.target.delaying.add(self._node()),
            "arrive": self._arrive,
            "lose": self._lose,
            "refuse position": lambda: fleet.ledger.refused.update({self._key(): REFUSAL}),
            "refuse part": lambda: fleet.ledger.unaddable.update({self._key(): REFUSAL}),
            "expire": lambda: fleet.ledger.expire(self._id()),
            "fence": lambda: fleet.ledger.fence([self._id()]),
            "protocol": self._change_protocol,
            "move": self._move,
            "freeze": lambda: self._freeze(frozen=True),
            "thaw": lambda: self._freeze(frozen=False),
            "usurp": self._usurp,
            "kill": lambda: fleet.kill(self._worker()),
            "abort": self._abort_commit,
            "slow": lambda: self._pace(self._random.choice(STEPS_EACH)),
            "heal": self.heal,
        }
        self._requests: tuple[str, ...] = REQUESTS
        if fleet.settings.is_fenced("t"):
            self._requests = (*REQUESTS, "data producer", "fence data", "fence data")
            self._kinds |= {"late markers": self._late_markers}
        elif THREE in fleet.settings.handlers:
            self._kinds |= {"lose process": self._lose_process}
        self.done: list[str] = []

    def harm(self) -> None:
        kind = self._random.choice((*self._kinds, *LIKELY))
        self.done.append(kind)
        self._kinds[kind]()

    def heal(self) -> None:
        fleet = self._fleet
        for worker in fleet.workers.values():
            worker.frozen = False
            worker.step_each = 1
        target = fleet.target
        for lasting in (target.silent, target.down, target.refuse, target.belated):
            lasting.clear()
        target.delaying.clear()
        for log in target.logs.values():
            log.max_bytes = LIMITS_BYTES[-1]
        fleet.ledger.refused.clear()
        fleet.ledger.unaddable.clear()

    def fill(self) -> None:
        """Records of one partition: plain, or in a transaction that may go on."""
        topic, number = self._key()
        log = self._fleet.source.logs[topic, number]
        count = self._random.randint(0, 8)
        if self._random.random() < 0.6:
            self._put(number, count, size=self._random.choice([1, 1, 500]))
            return
        producer = self._random.choice(SOURCE_PRODUCERS)
        for _ in range(count):
            row = (self._time_ms(), None, b"t/%d/%d " % (number, log.end), ())
            attributes = batches.TRANSACTIONAL
            log.put(batches.batch([row], producer_id=producer, attributes=attributes))
        if self._random.random() < 0.7:
            self._end_source_transaction(log.transactions, producer, number)

    def _put(self, number: int, count: int, *, size: int) -> None:
        put(self._fleet, number, count, size=size)

    def _time_ms(self) -> int:
        return 0

    def end_source_transactions(self) -> None:
        for (_, number), log in self._fleet.source.logs.items():
            for producer in list(log.transactions):
                self._end_source_transaction(log.transactions, producer, number)

    def _end_source_transaction(self, open_: Mapping[int, int], producer: int, number: int) -> None:
        if producer in open_:
            commit = self._random.random() < 0.5
            log = self._fleet.source.logs["t", number]
            log.put(batches.marker(base_offset=0, producer_id=producer, commit=commit))

    def _arrive(self) -> None:
        self._fleet.target.arrive()
        self._fleet.ledger.arrive()

    def _belate(self) -> None:
        self._fleet.target.belated[self._key()] = self._codes(AFTER_APPEND)

    def _limit(self) -> None:
        """Batches that are larger are refused from now on, also those that are there already."""
        self._fleet.target.logs[self._key()].max_bytes = self._random.choice(LIMITS_BYTES)

    def _tear(self) -> None:
        self._kafka().cut_after[self._node()] = self._random.randint(0, 3_000)

    def _lose(self) -> None:
        request, outcome = self._random.choice(self._requests), self._random.choice(OUTCOMES)
        self._fleet.ledger.fail_next(request, outcome)

    def _late_markers(self) -> None:
        self._fleet.ledger.late_markers = 2

    def _lose_process(self) -> None:
        """The processes of a worker's handlers."""
        for process in processes(self._fleet.workers[self._worker()].lane):
            process.lose()

    def _change_protocol(self) -> None:
        self._fleet.ledger.protocol = self._random.choice(PROTOCOLS)

    def _freeze(self, *, frozen: bool) -> None:
        self._fleet.workers[self._worker()].frozen = frozen

    def _move(self) -> None:
        _, number = self._key()
        self._fleet.give(number, self._worker())

    def _abort_commit(self) -> None:
        self._fleet.workers[self._worker()].aborts_next_commit = True

    def _usurp(self) -> None:
        """The owner of a partition freezes, and the partition is another's."""
        _, number = self._key()
        owner = self._fleet.owners[Partition(ROUTE, "t", number)].worker
        if owner:
            self._fleet.workers[owner].frozen = True
            self._fleet.give(number, self._random.choice([w for w in WORKERS if w != owner]))

    def _pace(self, step_each: int) -> None:
        self._fleet.workers[self._worker()].step_each = step_each

    def _kafka(self) -> MemoryKafka:
        return self._random.choice([self._fleet.source, self._fleet.target])

    def _node(self) -> int:
        return self._random.randint(1, NODES)

    def _worker(self) -> str:
        return self._random.choice(WORKERS)

    def _id(self) -> str:
        """A transactional id; it is the name of its worker."""
        return self._worker()

    def _key(self) -> tuple[str, int]:
        return ("t", self._random.randrange(PARTITIONS))

    def _codes(self, among: Sequence[ErrorCode]) -> deque[int]:
        return deque(int(self._random.choice(among)) for _ in range(self._random.randint(1, 4)))
