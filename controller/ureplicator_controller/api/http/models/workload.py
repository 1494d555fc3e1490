"""Responses about load and partitions without progress."""

from __future__ import annotations

from pydantic import Field

from ureplicator_controller.api.http.models.responses import ResponseModel


class PartitionWithoutProgress(ResponseModel):
    """`since`: when its worker last measured progress, in milliseconds since 1970."""

    topic: str
    partition: int
    route: str
    idealWorker: str
    actualWorker: str
    since: int
    lag: int | None
    position: int | None
    moves: int = Field(description="how often it was moved for this")
    reason: str


class NoProgressList(ResponseModel):
    topics: list[PartitionWithoutProgress]


class TotalLoad(ResponseModel):
    partitions: int
    bytesPerSecond: int
    msgsPerSecond: float


class TopicLoad(TotalLoad):
    topic: str
    route: str


class LaggingPartition(ResponseModel):
    """`lagTime`: seconds to copy the lag at the present rate; null without progress."""

    topicName: str
    partitionId: int
    route: str
    latestOffset: int | None
    commitOffset: int | None
    lag: int
    lagTime: int | None


class WorkerLoad(ResponseModel):
    """Rates count for load balancing once they have settled. `suspect`: the worker is assigned nothing,
    because a partition made no progress on it that does on another worker."""

    workerId: str
    numberOfTopicPartitions: int
    totalWorkload: int
    msgsPerSecond: float
    settledPartitions: int
    suspect: bool
    laggingTopicPartition: list[LaggingPartition]


class Workload(ResponseModel):
    autoBalancingEnabled: bool
    numOfExpectedWorkers: int = Field(
        description="bytesPerSecond by controller.expected_worker_bytes_per_s, one more, and those that lag"
    )
    numOfLaggingWorkers: int
    topicWorkload: TotalLoad
    topics: list[TopicLoad]
    workerInstances: list[WorkerLoad]
