"""Transactions that fill gaps where control records may not be written on request.

A transaction of unknown outcome may write its records late. So its partitions do not start before it is
settled, and the next one has another id: it does not wait for the partitions of the former.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping

from ureplicator_common.clock import Clock
from ureplicator_common.kafka import ClusterUnavailable, PartitionUnavailable
from ureplicator_common.kafka.positions import PositionStore
from ureplicator_common.kafka.transactions.control_records import ControlRecords
from ureplicator_common.kafka.transactions.position_rows import TargetPartition
from ureplicator_worker.copier.messages import ControlRecordsWritten, WriteControlRecords

logger = logging.getLogger(__name__)

SAID_FIRST, SAID_EVERY = 100, 10_000
"""Numbers of transactions after which their mean time is logged: the first time, and each further one."""


class GapTransactions:
    """`new_name`: a name that was never used, each time."""

    def __init__(self, store: PositionStore, new_name: Callable[[], str], *, clock: Clock) -> None:
        self._store = store
        self._new_name = new_name
        self._clock = clock
        self._current: ControlRecords | None = None
        self._in_doubt: list[tuple[ControlRecords, frozenset[TargetPartition]]] = []
        self._count, self._took_s = 0, 0.0

    def write(self, wanted: WriteControlRecords) -> ControlRecordsWritten:
        current = self._current or self._store.control_records(self._new_name())
        self._current = current
        targets = frozenset(wanted.targets)
        began_s = self._clock.monotonic_s()
        try:
            refused = current.write(wanted.targets)
        except ClusterUnavailable as error:
            self._current = None
            self._in_doubt.append((current, targets))
            return ControlRecordsWritten(doubt=dict.fromkeys(targets, str(error)))
        self._took_s += self._clock.monotonic_s() - began_s
        self._count += 1
        self._say(targets)
        return ControlRecordsWritten(written=targets - refused.keys(), refused=refused)

    def _say(self, targets: Collection[TargetPartition]) -> None:
        if self._count % SAID_EVERY == SAID_FIRST:
            topics = ", ".join(sorted({topic for topic, _ in targets}))
            logger.warning(
                "%s: without ALTER on the cluster each source offset without a record takes a transaction"
                " (%.1f ms on average), one for all partitions that wait",
                topics,
                self._took_s / self._count * 1_000,
            )

    def unsettled(
        self, starting: Collection[TargetPartition]
    ) -> Mapping[TargetPartition, PartitionUnavailable]:
        """Partitions of them that may get a control record yet, with the reason."""
        reasons: dict[TargetPartition, PartitionUnavailable] = {}
        for records, targets in list(self._in_doubt):
            concerned = targets.intersection(starting)
            if not concerned:
                continue
            try:
                records.settle()
            except ClusterUnavailable as error:
                reason = PartitionUnavailable(f"a control record may follow: {error}")
                reasons |= dict.fromkeys(concerned, reason)
            else:
                self._in_doubt.remove((records, targets))
        return reasons
