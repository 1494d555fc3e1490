"""Responses about workers."""

from __future__ import annotations

from pydantic import Field

from ureplicator_common.model import PartitionState
from ureplicator_controller.api.http.models.responses import ResponseModel


class WorkerPartition(ResponseModel):
    route: str
    topic: str
    partition: int
    state: PartitionState
    reason: str
    bytesPerSecond: int = Field(
        description="mean over the last minutes, as of half a minute ago at most"
    )


class WorkerDetails(ResponseModel):
    live: bool = Field(description="has a session that counts")
    evicted: bool = Field(description="live, but counted as dead")
    host: str
    port: int = Field(description="of its own pages")
    version: str
    slots: int = Field(description="its share of partitions is in proportion to them")
    tags: list[str] = Field(description="words by which routes ask for it")
    zone: str = Field(description="zone of failure; empty: unknown")
    leaving: bool = Field(description="it ends as soon as others have taken its partitions")
    noCapacity: str = Field(
        description="why no copier of it runs, and since when; its partitions go to other workers"
    )
    blacklisted: bool
    draining: bool
    lastSeen: int | None = Field(description="milliseconds since 1970")
    idealPartitions: int = Field(description="partitions that it should own")
    heldPartitions: int = Field(description="partitions that it holds")
    onlinePartitions: int
    errorPartitions: int
    bytesPerSecond: int = Field(description="of all partitions that it holds")
    partitions: list[WorkerPartition]


class InstanceList(ResponseModel):
    instances: dict[str, list[str]] = Field(
        description="live worker -> what it holds, as topic.partition:bytesPerSecond, and last the total, as"
        " TOTALWORKLOAD.partitions:bytesPerSecond"
    )
    blacklisted: list[str]
    allInstances: list[str] = Field(description="also those that are gone")
    workers: dict[str, WorkerDetails]


class WorkerForgotten(ResponseModel):
    worker: str
    forgotten: bool = Field(description="the leader removes its nodes")


class WorkerTags(ResponseModel):
    worker: str
    blacklisted: bool
    draining: bool
