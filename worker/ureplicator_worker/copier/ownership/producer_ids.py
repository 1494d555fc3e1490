"""Producer ids for the data: requested until a broker of the target gives one out.

A failed attempt is repeated at a deadline, not after a pause: commits go on in between. The time of an
attempt is short for the same reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_common.kafka.client import ClusterClient
from ureplicator_common.kafka.transactions.producers import init_producer
from ureplicator_worker.copier.messages import ClusterError, ProducerReady
from ureplicator_worker.copier.start_position import cluster_errors_named

RETRY_S = 0.5
ATTEMPT_S = 2.0


class ProducerIds:
    """`due_at_s`: time of the next attempt; infinite while none is wanted."""

    def __init__(
        self, target: ClusterClient, post: Callable[[ProducerReady | ClusterError], None]
    ) -> None:
        self.due_at_s = math.inf
        self._target = target
        self._post = post

    def request(self) -> None:
        self.due_at_s = -math.inf

    def work(self, now_s: float) -> None:
        if now_s < self.due_at_s:
            return
        try:
            with cluster_errors_named("target"), self._target.within(ATTEMPT_S):
                producer = init_producer(self._target, None)
        except ClusterUnavailable as error:
            self.due_at_s = now_s + min(RETRY_S, error.delay_s)
            self._post(ClusterError(str(error)))
        else:
            self.due_at_s = math.inf
            self._post(ProducerReady(producer))
