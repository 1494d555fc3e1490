"""Settings of audits and of the role that carries them out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import Field

from ureplicator_common.config.properties import PropertyText, masked
from ureplicator_common.config.roles import HOST, NotNegative, Port, Positive
from ureplicator_common.config.section import Section

BytesPerS = Annotated[int, Field(ge=10_000)]


class AuditSettings(Section):
    """Audits: comparisons of source and target, see `docs/audit.md`."""

    stale_after_s: Positive = 86_400.0
    """Seconds after which a topic that was copied on and not verified since counts as *stale*. Default: a
    day."""
    host: str = "127.0.0.1"
    """Address of an auditor's `/status`, `/metrics`, `/health` and `/ready`."""
    advertise: str = Field(default="", pattern=rf"{HOST}|^$")
    """Host name or address under which others reach the auditor: in its live node. Default: that of
    `host`."""
    port: Port = 0
    """Port of these pages; 0: any free port, published in the auditor's live node."""
    bytes_per_s: BytesPerS = 50_000_000
    """Bytes per second that a requested audit reads from each cluster, unless the request names a rate."""
    reports: str = ""
    """Folder for the whole results of requested audits, as JSON; empty: only the state in ZooKeeper, with the
    first few differences, is kept."""
    idle_spark_s: NotNegative = 300.0
    """Seconds without a comparison of records after which an auditor ends its JVM; the next comparison starts
    one, in some seconds. 0: never."""
    spark: Mapping[str, PropertyText] = Field(default_factory=dict)
    """Spark properties of an auditor by their own names; an empty or missing `spark.master` is this machine,
    with one core for requested audits and one for each route that is followed: so many partitions are
    compared at a time."""

    @property
    def address(self) -> str:
        """The address that others are given."""
        return self.advertise or self.host

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        for name, value in super().__repr_args__():
            yield name, masked(self.spark) if name == "spark" else value


class RouteAuditSettings(Section):
    """Continuous audit of a route."""

    continuous: bool = False
    """true: an auditor follows behind the copy and compares new records. Default false: it reads both
    clusters, and costs CPU."""
    bytes_per_s: BytesPerS = 1_000_000
    """Bytes per second whose records are compared behind the copy, where checksums of batches do not prove
    that both sides are equal. Beyond it the newest part of each partition is compared, and the coverage is
    shown."""
