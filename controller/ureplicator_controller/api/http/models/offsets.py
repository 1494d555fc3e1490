"""Responses about lag and positions of partitions."""

from __future__ import annotations

from pydantic import Field

from ureplicator_controller.api.http.models.responses import ResponseModel


class PartitionLag(ResponseModel):
    """Null: not known; `reason` has the cause, or what is wrong."""

    position: int | None = Field(description="next source offset to copy")
    logStart: int | None = Field(description="first offset of the source")
    logEnd: int | None = Field(description="end of the source's committed records")
    lagRecords: int | None = Field(
        description="offsets from position to `logEnd`; with `heldRecords` to the end of the log"
    )
    lagSeconds: float | None = Field(description="how long the next record has waited")
    recordsPerSecond: float | None = Field(description="over the last half minute")
    catchUpSeconds: float | None = Field(description="at the present rate")
    retentionSeconds: float | None = Field(description="until the next record may be deleted")
    heldRecords: int | None = Field(
        description="offsets from `logEnd` to the end of the log, held by an open transaction"
    )
    heldSeconds: float | None = Field(description="for how long `logEnd` has been seen held")
    reason: str | None = None


class PartitionOffset(PartitionLag):
    topic: str
    partition: int
    route: str
    ageSeconds: float | None = Field(description="age of the figures")


class TopicOffsets(ResponseModel):
    """Lag summed over the partitions, longest lag in seconds, shortest time to retention; without the
    `unknown` partitions."""

    topic: str
    route: str
    partitions: int
    lagRecords: int | None
    lagSeconds: float | None
    retentionSeconds: float | None
    heldRecords: int | None = Field(description="offsets that open transactions hold")
    heldSeconds: float | None = Field(description="the longest of them")
    neverCommitted: int = Field(description="partitions without a position")
    unknown: int = Field(description="partitions whose lag is unknown")


class OffsetList(ResponseModel):
    ageSeconds: float | None = Field(description="age of the figures")
    topics: list[TopicOffsets]
