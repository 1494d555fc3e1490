"""Executors of copiers, and those that Spark decommissions, noticed by their driver.

A decommissioned executor is given no further task and waits for those it runs, a copier for ever; then
its host goes, or it is killed after `spark.executor.decommission.forceKillTimeout`. Spark has no event
for it, neither in the driver nor for a task, but its scheduler has the state, however the executor came
by it (a Spark worker of a standalone cluster that got SIGPWR, a pod that is to be deleted). So the
scheduler is queried every second for the executors of the copiers that run.

Which executor runs a copier is read from the status of its job, once: a task is known there some
hundred milliseconds after it started.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from ureplicator_worker.core.events import CopierPlaced, Event, FromCopier
from ureplicator_worker.lifeline.messages import CopierId, StopRequest

logger = logging.getLogger(__name__)

QUERY_EVERY_S = 1.0


class DecommissionWatch:
    """`spark` is the JVM's SparkContext; `copiers` are those that run, with their job groups.

    `put` gets CopierPlaced, and a StopRequest for a copier whose executor is decommissioned.
    """

    def __init__(self, spark: Any, *, put: Callable[[Event], None]) -> None:
        self._spark = spark
        self._put = put
        self._executors: dict[CopierId, str] = {}
        self._reported: set[CopierId] = set()

    def watch(
        self, *, copiers: Callable[[], Mapping[CopierId, str]], ended: Callable[[], bool]
    ) -> None:
        """Query until the end, which may hang with the JVM: in a thread of its own."""
        while not ended():
            time.sleep(QUERY_EVERY_S)
            try:
                self.query(copiers())
            except (
                Exception
            ) as error:  # whatever py4j raises; another thread notices a JVM that is gone
                logger.debug("executors cannot be queried: %s", error)

    def query(self, copiers: Mapping[CopierId, str]) -> None:
        """Report each copier on a decommissioned executor once."""
        self._forget_all_but(copiers.keys())
        for copier, group in copiers.items():
            executor = self._executors.get(copier, "")
            if not executor:
                executor = self._executors[copier] = self._executor_of(group)
                if executor:
                    self._put(CopierPlaced(copier, executor))
            if copier in self._reported or not executor:
                continue
            if self._spark.taskScheduler().getExecutorDecommissionState(executor).isDefined():
                logger.warning("copier %s: executor %s is decommissioned", copier, executor)
                self._reported.add(copier)
                stop = StopRequest("its executor is decommissioned")
                self._put(FromCopier(copier, stop))

    def _forget_all_but(self, copiers: Collection[CopierId]) -> None:
        self._executors = {c: known for c, known in self._executors.items() if c in copiers}
        self._reported &= set(copiers)

    def _executor_of(self, group: str) -> str:
        """Executor of the group's only task; empty while that is not known."""
        tracker = self._spark.statusTracker()
        for job in tracker.getJobIdsForGroup(group):
            info = tracker.getJobInfo(job)
            for stage in info.get().stageIds() if info.isDefined() else ():
                tasks = self._spark.statusStore().taskList(stage, 0, 1)
                if tasks.nonEmpty():
                    return str(tasks.head().executorId())
        return ""
