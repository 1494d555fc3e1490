"""The topic of claims of a cluster in memory, for several fleets: it can fail, and let others be faster."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ureplicator_common.clock import Clock
from ureplicator_common.config.route import RouteConfig
from ureplicator_common.errors import OperatingError
from ureplicator_common.kafka.claim_records import Claim, Claims, encode_key, encode_value
from ureplicator_controller.engines.claims.between_fleets import FleetClaims
from ureplicator_testkit.control.manual_clock import ManualClock

Record = tuple[bytes, bytes | None]


class MemoryClaimTopic:
    """`records`: the log, None where a record was compacted away. `failure`: raised by every request.
    `before_write`: called before a record is appended."""

    def __init__(self, cluster_id: str) -> None:
        self.id = cluster_id
        self.records: list[Record | None] = []
        self.failure: OperatingError | None = None
        self.before_write: Callable[[], None] = lambda: None
        self.requests = 0

    def log(self) -> MemoryClaimLog:
        """A client of its own."""
        return MemoryClaimLog(self)

    def request(self) -> None:
        self.requests += 1
        if self.failure is not None:
            raise self.failure

    def compact(self) -> None:
        """Keep the newest record of each key; they keep their offsets. Markers of deletion go, too."""
        newest = {record[0]: offset for offset, record in enumerate(self.records) if record}
        kept = set(newest.values())
        self.records = [
            record if record and record[1] is not None and offset in kept else None
            for offset, record in enumerate(self.records)
        ]


class MemoryClaimLog:
    """`ClaimLog` of a topic in memory."""

    def __init__(self, topic: MemoryClaimTopic) -> None:
        self._topic = topic
        self._claims = Claims()
        self._next_offset = 0
        self.closed = False

    def cluster_id(self) -> str:
        self._topic.request()
        return self._topic.id

    def read(self) -> Claims:
        self._topic.request()
        for offset in range(self._next_offset, len(self._topic.records)):
            if record := self._topic.records[offset]:
                self._claims.add(offset, *record)
            self._next_offset = offset + 1
        return self._claims

    def write(self, claim: Claim) -> None:
        self._append((encode_key(claim), encode_value(claim)))

    def withdraw(self, claim: Claim) -> None:
        self._append((encode_key(claim), None))

    def close(self) -> None:
        self.closed = True

    def _append(self, record: Record) -> None:
        self._topic.request()
        before, self._topic.before_write = self._topic.before_write, lambda: None
        before()
        self._topic.records.append(record)


def claims_of(
    *configs: RouteConfig,
    clusters: Mapping[str, MemoryClaimTopic] | None = None,
    fleet: str = "test",
    clock: Clock | None = None,
) -> FleetClaims:
    """Claims of a fleet with these routes; without any it claims nothing."""
    topics = clusters or {}
    return FleetClaims(
        fleet=fleet,
        routes={config.route: config for config in configs},
        logs=lambda name: topics[name].log(),
        clock=clock or ManualClock(),
    )
