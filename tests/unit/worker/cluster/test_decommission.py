"""The query for decommissioned executors, against objects with the methods of Spark's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ureplicator_worker.core.events import CopierPlaced, Event, FromCopier
from ureplicator_worker.engines.decommission import DecommissionWatch
from ureplicator_worker.lifeline.messages import CopierId, StopRequest

ONE, TWO = CopierId(0, 1), CopierId(1, 1)
RUNNING = {ONE: "copier 0#1", TWO: "copier 1#1"}


class Option:
    def __init__(self, value: Any) -> None:
        self._value = value

    def isDefined(self) -> bool:
        return self._value is not None

    def nonEmpty(self) -> bool:
        return self._value is not None

    def get(self) -> Any:
        return self._value

    head = get


class Spark:
    """A SparkContext: job and stage have the number of the slot."""

    def __init__(self, executors: Mapping[str, str]) -> None:
        self.executors = executors
        self.decommissioned: set[str] = set()

    def statusTracker(self) -> Spark:
        return self

    statusStore = taskScheduler = statusTracker

    def getJobIdsForGroup(self, group: str) -> Sequence[int]:
        return [list(RUNNING.values()).index(group)]

    def getJobInfo(self, job: int) -> Option:
        self.job = job
        return Option(self)

    def stageIds(self) -> Sequence[int]:
        return [self.job]

    def taskList(self, stage: int, attempt: int, count: int) -> Option:
        self.executor = self.executors.get(list(RUNNING.values())[stage])
        return Option(None if self.executor is None else self)

    def executorId(self) -> str:
        assert self.executor is not None
        return self.executor

    def getExecutorDecommissionState(self, executor: str) -> Option:
        return Option(True if executor in self.decommissioned else None)


def stop(copier: CopierId) -> FromCopier:
    return FromCopier(copier, StopRequest("its executor is decommissioned"))


def test_the_executor_of_a_copier_is_reported_once_it_is_known() -> None:
    executors = {"copier 0#1": "5"}
    spark = Spark(executors)
    events: list[Event] = []
    watch = DecommissionWatch(spark, put=events.append)
    watch.query(RUNNING)
    watch.query(RUNNING)
    assert events == [CopierPlaced(ONE, "5")]
    executors["copier 1#1"] = "6"
    watch.query(RUNNING)
    assert events == [CopierPlaced(ONE, "5"), CopierPlaced(TWO, "6")]


def test_copiers_on_a_decommissioned_executor_are_reported_once() -> None:
    spark = Spark({"copier 0#1": "5", "copier 1#1": "6"})
    events: list[Event] = []
    watch = DecommissionWatch(spark, put=events.append)
    watch.query(RUNNING)
    placed = [CopierPlaced(ONE, "5"), CopierPlaced(TWO, "6")]
    assert events == placed
    spark.decommissioned = {"6"}
    watch.query(RUNNING)
    watch.query(RUNNING)
    assert events == [*placed, stop(TWO)]
    watch.query({ONE: RUNNING[ONE]})
    spark.decommissioned = {"5"}
    watch.query(RUNNING)
    assert events == [*placed, stop(TWO), stop(ONE), placed[1]]


def test_a_copier_whose_executor_is_not_known_yet_is_queried_again() -> None:
    spark = Spark({})
    spark.decommissioned = {"5"}
    events: list[Event] = []
    watch = DecommissionWatch(spark, put=events.append)
    watch.query(RUNNING)
    assert events == []
    spark.executors = {"copier 0#1": "5"}
    watch.query(RUNNING)
    assert events == [CopierPlaced(ONE, "5"), stop(ONE)]


def test_a_query_that_fails_is_made_again(monkeypatch: Any) -> None:
    """py4j raises when the JVM goes, and for a stage whose status is dropped."""
    monkeypatch.setattr("ureplicator_worker.engines.decommission.QUERY_EVERY_S", 0.0)
    queries: list[int] = []

    def running() -> Mapping[CopierId, str]:
        queries.append(1)
        raise RuntimeError("Answer from Java side is empty")

    watch = DecommissionWatch(Spark({}), put=lambda event: None)
    watch.watch(copiers=running, ended=lambda: len(queries) == 3)
    assert len(queries) == 3
