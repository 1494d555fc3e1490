"""Settings of the two roles: controllers and workers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from ureplicator_common.config.access import AccessSettings, TlsSettings, is_loopback
from ureplicator_common.config.properties import PropertyText, masked
from ureplicator_common.config.section import Fault, Faults, Section
from ureplicator_common.model import (
    MAX_SLOTS,
    MAX_TRANSACTION_INTERVAL_MS,
    TRANSACTION_TIMEOUT_MS,
)

Port = Annotated[int, Field(ge=0, le=65_535)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Tag = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=63)]
"""A word by which routes ask for workers, in the form of a label's value in Kubernetes."""
MAX_TAGS = 16
HOST = r"^[^\s:/,\[\]]+$"
"""A host name or an IPv4 address."""


class TimelineSettings(Section):
    """Figures and events of the last day, which each controller keeps for the dashboard."""

    folder: str = ""
    """Folder for the file of SQLite, `<fleet>-<id>.sqlite`; empty: in memory, until the controller ends."""
    interval_s: Annotated[float, Field(ge=1, le=3_600)] = 15.0
    """Seconds between two samples. For each the lag is read from the clusters, unless a request did just
    now."""


class TracingSettings(Section):
    """Traces of requests and of what the leader makes of them, for OpenTelemetry."""

    endpoint: Annotated[str, Field(pattern=r"^$|^https?://\S+$")] = ""
    """URL of a collector that takes OTLP over HTTP, as `http://collector:4318/v1/traces`; empty: no traces.
    Headers and certificates are in OpenTelemetry's environment, such as `OTEL_EXPORTER_OTLP_HEADERS`."""


class ControllerSettings(Section):
    """REST and the delays and limits of the leader's plan."""

    host: str = "127.0.0.1"
    """Address that REST listens on. Another than of this machine needs `controller.access`."""
    advertise: str = Field(default="", pattern=rf"{HOST}|^$")
    """Host name or address under which others reach the controller: in its live node and in `/controllers`.
    Default: that of `host`."""
    access: AccessSettings = AccessSettings()
    tls: TlsSettings = TlsSettings()
    timeline: TimelineSettings = TimelineSettings()
    tracing: TracingSettings = TracingSettings()
    allowed_hosts: tuple[str, ...] = ()
    """Public names under which clients reach REST, as in `["ureplicator.example.com"]`. Addresses, names
    without a dot and those of Kubernetes always count; any other is refused, since a page of the Web may
    let its own name point here."""
    port: Port = 9000
    """Port of REST; 0: any free port, published in the controller's live node."""
    metrics_port: Port = 0
    """Port of the daemon's own metrics; 0: any free port. Metrics of the fleet are at REST's
    `/metrics`."""
    rebalance_delay_s: NotNegative = 120.0
    """Seconds that the partitions of a lost worker wait for it to return. Default 120 s: a rolling
    restart moves nothing. 0: they move at once."""
    join_delay_s: NotNegative = 10.0
    """Seconds after the last join before new workers receive partitions. Default 10 s: a fleet that
    starts up moves partitions once."""
    handover_timeout_s: Positive = 30.0
    """Seconds a worker may take to release a partition before it is evicted; while it releases others that
    were requested no later, up to ten times as long. Default 30 s: a healthy worker takes up to 25 s while
    its target does not respond."""
    expected_worker_bytes_per_s: Positive = 50_000_000.0
    """Bytes per second that one worker is expected to copy: `numOfExpectedWorkers` of
    `/admin/workloadinfo` counts with it, and nothing else. Default 50 MB/s: what a slot copies if a
    handler reads each record of 100 bytes; without one it copies six times as much and more."""
    balance_ratio: Annotated[float, Field(ge=1.05, allow_inf_nan=False)] = 1.2
    """Load balancing moves partitions off a worker whose load exceeds the average by this factor.
    Default 1.2: rates always differ by a few per cent, and each move interrupts a partition briefly."""
    balance_moves: Annotated[int, Field(ge=0)] = 10
    """Maximum number of load balancing moves per minute; 0: load balancing is off. Moves for lost,
    new or drained workers are not limited by it."""
    max_concurrent_moves: Annotated[int, Field(ge=1)] = 100
    """Maximum number of partitions of a route that live workers are releasing for others at a time. The
    rest is copied until it is its turn. Default 100: a thousand partitions of a drained worker move within
    seconds, and each of them pauses for a moment only. Partitions of lost workers, which nobody copies,
    all move at once."""
    max_lost_share: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Brake on mass loss: while more than this share of the workers is lost at once, nothing moves until
    enough are back or operators confirm the loss. Default 0.5: of two workers, one may be lost. 1: no
    brake."""
    fence_commands: str = ""
    """Folder with the programs that a cutover may call as its fence, on the machine of each controller.
    Default: none, so that nobody starts programs through REST."""

    @property
    def address(self) -> str:
        """The address that others are given."""
        return self.advertise or self.host

    @model_validator(mode="after")
    def _access_fits(self) -> ControllerSettings:
        if self.access.mode == "loopback" and not is_loopback(self.host):
            raise Faults(
                [
                    Fault(
                        "access.mode",
                        f"REST without login may not listen on {self.host}: set access.mode to tokens"
                        " with operator_tokens_file, or to open",
                    )
                ]
            )
        return self


class WorkerSettings(Section):
    """Copiers, their buffers and their timeouts."""

    slots: int = Field(default=2, ge=1, le=MAX_SLOTS)
    """Number of copiers of this worker, each a Spark task on one core. Default 2: the smallest
    useful machine has two cores."""
    tags: tuple[Tag, ...] = Field(default=(), max_length=MAX_TAGS)
    """Words by which routes ask for workers (`routes[].workers.tags`). A worker with tags also copies routes
    that ask for none."""
    zone: Annotated[str, Field(max_length=63)] = ""
    """Zone of failure that the worker is in. The partitions of a topic are spread over zones, and there over
    workers. Default: unknown."""
    bind: str = Field(default="127.0.0.1", pattern=HOST)
    """Address that the worker listens on: its pages, and with a Spark cluster the lifeline of its copiers
    and Spark's driver. Default: this machine only."""
    advertise: str = Field(default="", pattern=rf"{HOST}|^$")
    """Host name or address under which others reach the worker: in its live node, and for its executors.
    Default: that of `bind`."""
    port: Port = 0
    """Port of the pages `/status`, `/metrics`, `/health` and `/ready`; 0: any free port, published in the
    worker's live node."""
    lifeline_port: Port = 0
    """Port that copiers connect to; 0: any free port. A firewall between driver and executors needs fixed
    ones; those of Spark are `spark.driver.port` and `spark.driver.blockManager.port`."""
    commit_interval_s: Positive = 1.0
    """Seconds between two commits of positions, and so the most that is copied again after a crash."""
    transaction_interval_ms: int = Field(default=100, ge=5)
    """Milliseconds between two transactions of a slot with records of handlers and queries, exactly once: so
    long may such a record wait until readers with `read_committed` see it. It grows with the number of
    partitions, and while there is a backlog with the time that commits take, to 30,000 at most: a target
    aborts a transaction that is open for 60 s."""
    buffer_bytes: int = Field(default=64 * 1024 * 1024, ge=16 * 1024 * 1024)
    """Bytes that a slot may hold between fetch and acknowledgement; a slow target then slows down
    the fetch. Default 64 MiB: 100 ms at 5 Gbit/s."""
    drain_timeout_s: Positive = 30.0
    """Seconds that a stop waits for records in flight. Default 30 s: Kubernetes' grace period before
    it kills a pod."""
    on_stop: Literal["stay", "leave"] = "stay"
    """Partitions of a worker that is stopped `stay` with it for `controller.rebalance_delay_s`, or `leave`
    for other workers before it ends. Default: stay, since most stops are restarts. SIGUSR1 makes any worker
    leave."""
    leave_timeout_s: Positive = 60.0
    """Seconds that a worker which leaves waits until other workers have taken its partitions. Then it stops
    in any case, and what is left stays for the delay."""
    watchdog_s: Positive = 60.0
    """Seconds without a step of its main loop after which a worker exits, so that others take over its
    partitions."""
    capacity_timeout_s: Positive = 30.0
    """Seconds without a running copier after which the partitions of a slot go to the worker's other slots,
    and those of a worker to workers whose Spark has room for copiers. Default 30 s: Spark replaces a lost
    executor within some seconds."""
    spark: Mapping[str, PropertyText] = Field(default_factory=dict)
    """Spark properties by their own names; an empty or missing `spark.master` is `local[slots+1]`. Those
    that copiers depend on are pinned."""
    spark_secret_file: str = ""
    """File with the secret by which Spark's driver, executors and cluster authenticate each other. Required
    when executors may be on other machines, and not used with `local[n]`."""

    @field_validator("transaction_interval_ms")
    @classmethod
    def _ends_in_time(cls, transaction_interval_ms: int) -> int:
        if transaction_interval_ms > MAX_TRANSACTION_INTERVAL_MS:
            raise ValueError(
                f"expected at most {MAX_TRANSACTION_INTERVAL_MS}: a transaction must be sealed, settled and"
                f" committed before its time-out of {TRANSACTION_TIMEOUT_MS} ms: the target aborts it then"
            )
        return transaction_interval_ms

    @property
    def address(self) -> str:
        """The address that others are given."""
        return self.advertise or self.bind

    @property
    def spark_master(self) -> str:
        return self.spark.get("spark.master") or f"local[{self.slots + 1}]"

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        for name, value in super().__repr_args__():
            yield name, masked(self.spark) if name == "spark" else value
