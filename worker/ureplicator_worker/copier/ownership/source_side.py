"""The source's side of a start: where copying begins, found in a thread of its own.

The ownership thread commits, so it must not wait for the source: it hands over what it has proven, fenced
and read at the target, and gets the results back as commands, in portions, as they become known.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_common.kafka.client import ClusterClient
from ureplicator_worker.copier.behind import CountBehind
from ureplicator_worker.copier.messages import (
    Command,
    FindStarts,
    Locate,
    Located,
    OwnershipCrashed,
    SourceFailed,
    StartsFound,
)
from ureplicator_worker.copier.start_position import find_starts, policy_time, source_offset

Job = FindStarts | Locate


class SourceSide:
    """`put` takes the results; a crash of the thread goes to `post`.

    `start` starts the thread; without it the caller calls `step` while `pending`.
    """

    def __init__(
        self,
        *,
        name: str,
        source: ClusterClient,
        put: Callable[[Command], None],
        post: Callable[[OwnershipCrashed], None],
        count: CountBehind,
    ) -> None:
        self._source = source
        self._count = count
        self._put = put
        self._post = post
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=f"starts-{name}", daemon=True)

    @property
    def pending(self) -> bool:
        return not self._jobs.empty()

    def start(self) -> None:
        self._thread.start()

    def request(self, job: Job) -> None:
        self._jobs.put(job)

    def close(self) -> None:
        """End the thread. It may wait for a broker: for the time-out of a request."""
        self._jobs.put(None)
        if self._thread.ident is not None:
            self._thread.join(timeout=20.0)
        self._source.close()

    def _run(self) -> None:
        try:
            while (job := self._jobs.get()) is not None:
                self._perform(job)
        except Exception as error:  # a thread's error is seen only if it is posted
            self._post(OwnershipCrashed(error))

    def step(self) -> None:
        """Perform the next job."""
        job = self._jobs.get()
        assert job is not None, "the end of the thread is no job"
        self._perform(job)

    def _perform(self, job: Job) -> None:
        if isinstance(job, FindStarts):
            self._find(job)
        else:
            self._locate(job)

    def _find(self, job: FindStarts) -> None:
        try:
            for portion in find_starts(
                job.grants,
                job.stored,
                source=self._source,
                target=job.target,
                count=self._count,
            ):
                self._put(StartsFound(job, portion))
        except ClusterUnavailable as error:
            self._put(SourceFailed(job, error))

    def _locate(self, job: Locate) -> None:
        try:
            time_ms = policy_time(job.grant.settings.on_gap)
            self._put(Located(job, source_offset(job.partition, self._source, time_ms)))
        except ClusterUnavailable as error:
            self._put(SourceFailed(job, error))
