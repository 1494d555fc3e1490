"""Check of a target before records go there exactly once without transactions.

    settings of its brokers (`producer_memory`) --> too short: refused, with the reason
    trial in a topic of the fleet (`sequence_probe`) --> something is missing: refused, with the reason
    not shown, not allowed, or no response --> copied, with a line in the log, and checked again soon

One check serves all partitions of a route in a copier. The trial is made until it has passed once; settings
are read again, since brokers may change them while they run.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ureplicator_common.errors import OperatingError
from ureplicator_common.kafka.client import ClusterClient
from ureplicator_common.kafka.transactions.broker_settings import read_memory
from ureplicator_common.kafka.transactions.producer_memory import PRODUCER_KEPT_S, ProducerMemory
from ureplicator_common.kafka.transactions.sequence_probe import probe_sequences

CHECK_S = 3.0
"""Limit of one check: the first takeover of a copier waits for it."""
PASSED_S = 3600.0
"""Time until a target that has passed is checked again."""
SOON_S = 30.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CheckedTarget:
    """`refusal`: why the target cannot be used; "": it can, as far as is known. `kept_s`: time for which
    its brokers surely know a producer."""

    refusal: str = ""
    kept_s: float = PRODUCER_KEPT_S


class CheckTarget(Protocol):
    def checked(self) -> CheckedTarget:
        """The last finding, or a new one if that is due."""


class KafkaTargetCheck:
    """`new_id`: a transactional id that was never used, each time."""

    def __init__(
        self,
        client: ClusterClient,
        *,
        topic: str,
        new_id: Callable[[], str],
        wall_s: Callable[[], float],
    ) -> None:
        self._client = client
        self._topic = topic
        self._new_id = new_id
        self._wall_s = wall_s
        self._memory = ProducerMemory({}, "not read yet")
        self._probed = False
        self._warned = ""
        self._found = CheckedTarget()
        self._due_at_s = 0.0

    def checked(self) -> CheckedTarget:
        if self._client.now_s() >= self._due_at_s:
            with self._client.within(CHECK_S):
                unknown = self._read()
                lacking = self._memory.fault()
                if not lacking and not self._probed:
                    lacking, reason = self._probe()
                    unknown = unknown or reason
            self._warn(unknown)
            refusal = f"target: exactly once is refused: {lacking}" if lacking else ""
            self._found = CheckedTarget(refusal, self._memory.kept_s)
            again_s = SOON_S if refusal or unknown else PASSED_S
            self._due_at_s = self._client.now_s() + again_s
        return self._found

    def _read(self) -> str:
        """Read the settings; why they are not known."""
        try:
            read = read_memory(self._client)
        except OperatingError as error:
            return str(error)
        if read.settings_s:
            self._memory = read
        return read.unread

    def _probe(self) -> tuple[str, str]:
        """Properties that the target lacks, and the reason if they are not known."""
        try:
            lacking = probe_sequences(
                self._client,
                topic=self._topic,
                transactional_id=self._new_id(),
                time_ms=round(self._wall_s() * 1_000),
            )
        except OperatingError as error:
            return "", str(error)
        self._probed = not lacking
        return lacking, ""

    def _warn(self, unknown: str) -> None:
        """Log the reason, once for each."""
        if unknown and unknown != self._warned:
            logger.warning("whether the target keeps what exactly once needs: %s", unknown)
        self._warned = unknown
