"""Faults of a history with the same offsets: logs that begin far from zero, requests about them that fail."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from unittest.mock import patch

from ureplicator_common.kafka.errors import ErrorCode
from ureplicator_testkit.copier.ledger_fleet import put
from ureplicator_testkit.copier.same_fleet import SameFleet
from ureplicator_testkit.copier.transaction_fleet import PARTITIONS
from ureplicator_testkit.exactly_once.fenced_faults import FencedFaults
from ureplicator_worker.copier.raw import gap_filling

FAR_SHARE = 0.4
"""Of the partitions: those whose source begins far from zero."""
RECORDS = 60
UNTIL_HEALED = 10_000
RESERVE, FILLER_RECORDS = 8, 5
OF_MARKERS = (
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED,
)
OF_DELETIONS = (
    ErrorCode.NONE,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.OFFSET_OUT_OF_RANGE,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
)


@contextmanager
def far_from_zero(fleet: SameFleet, random: Random) -> Iterator[None]:
    """Sources begin anywhere, and fillers are small."""
    for number in range(PARTITIONS):
        if random.random() < FAR_SHARE:
            put(fleet, number, RECORDS)
            fleet.delete(("t", number), random.randint(1, RECORDS))
    fleet.worn.clear()
    with patch.multiple(gap_filling, RESERVE=RESERVE, FILLER_RECORDS=FILLER_RECORDS):
        yield


class SameFaults(FencedFaults):
    _fleet: SameFleet

    def __init__(self, fleet: SameFleet, random: Random) -> None:
        super().__init__(fleet, random)
        target = fleet.target
        self._requests = (*self._requests, "write control records")
        self._kinds |= {
            "refuse markers": self._refuse_markers,
            "kill broker": lambda: fleet.kill_broker(target.leaders[self._key()]),
            "refuse deletions": lambda: target.refuse_deletions.update(
                {self._key(): self._codes(OF_DELETIONS)}
            ),
        }

    def _refuse_markers(self) -> None:
        """All from now on: of several in a request the answer is that to the last."""
        code = int(self._random.choice(OF_MARKERS))
        self._fleet.target.refuse_markers[self._key()] = deque([code] * UNTIL_HEALED)

    def heal(self) -> None:
        super().heal()
        self._fleet.target.refuse_markers.clear()
        self._fleet.target.refuse_deletions.clear()
