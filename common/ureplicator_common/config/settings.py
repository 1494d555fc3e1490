"""Everything that can be configured, checked once at start: a frozen tree, one class per concern.

One file serves controllers and workers, so that the two cannot disagree. `load_settings` tells
every fault in one go, each on its own line with its key, because a rollout that fails five times
for five mistakes is five outages. Unknown keys are faults too: a misspelt one would silently be a
default.

What a field means stands below it, with its unit (last in its name) and why it has its default.
Values that look like secrets never show in `repr`, and so neither in logs nor in tracebacks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    BeforeValidator,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from ureplicator_common.config.route import Faults, Section
from ureplicator_common.config.route import RouteConfig as RouteConfig
from ureplicator_common.config.sources import Fault, Unreadable, merged_tree
from ureplicator_common.errors import ConfigurationError
from ureplicator_common.model import Route

MASK = "********"
_CLUSTER_NAME = re.compile(r"[a-z0-9-]+")
_ADDRESS = re.compile(r"(?:[^\s:/,\[\]]+|\[[0-9a-fA-F:.%]+\]):([0-9]{1,5})")
_SECRET = re.compile(
    r"password|secret|token|credential|passphrase|jaas|\.key$|key\.pem|\bkey\b", re.I
)


def masked(properties: Mapping[str, str]) -> dict[str, str]:
    """The same properties, fit to be shown: what looks like a secret is starred."""
    return {
        name: MASK if value and _SECRET.search(name) else value
        for name, value in properties.items()
    }


def _property_text(value: object) -> object:
    """YAML's true, 3 and 1.5 as librdkafka and Spark write them."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if not isinstance(value, str):
        raise ValueError("one text, number or boolean is expected")
    return value


def _is_address(text: str) -> bool:
    """`host:port`, the host a name or an address; the part of us that has its own sockets needs both."""
    match = _ADDRESS.fullmatch(text)
    return match is not None and 0 < int(match[1]) <= 65_535


PropertyText = Annotated[str, BeforeValidator(_property_text)]
Port = Annotated[int, Field(ge=0, le=65_535)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class ZookeeperSettings(Section):
    """Where the fleet keeps its state."""

    hosts: str = Field(min_length=1, pattern=r"^[^\s,/]+(,[^\s,/]+)*$")
    """`host:port`, several with commas."""

    session_timeout_s: float = Field(default=10.0, ge=1, le=120, allow_inf_nan=False)
    """How long a silent process still counts as live. 10 s: above a long pause of a JVM or of a
    virtual machine, and short against `rebalance_delay_s`."""


class ClusterSettings(Section):
    """How to reach one Kafka cluster: librdkafka's names, whichever part of us does the talking."""

    properties: Mapping[str, PropertyText]

    @model_validator(mode="before")
    @classmethod
    def _wrap(cls, raw: object) -> object:
        """The file lists the properties right below the cluster's name."""
        if not isinstance(raw, Mapping):
            raise ValueError("a mapping of librdkafka properties is expected")
        if set(raw) == {"properties"} and isinstance(raw["properties"], Mapping):
            return raw
        return {"properties": raw}

    @model_validator(mode="after")
    def _reachable(self) -> ClusterSettings:
        faults = []
        servers = self.properties.get("bootstrap.servers", "")
        if not servers.strip():
            faults.append(Fault("bootstrap.servers", "is required"))
        elif not all(_is_address(server.strip()) for server in servers.split(",")):
            faults.append(Fault("bootstrap.servers", f"{servers!r} is not host:port,host:port,..."))
        protocol = self.properties.get("security.protocol", "PLAINTEXT")
        if protocol.upper() != "PLAINTEXT":
            faults.append(
                Fault("security.protocol", f"{protocol} is not supported yet, only PLAINTEXT")
            )
        if faults:
            raise Faults(faults)
        return self

    @property
    def bootstrap(self) -> frozenset[str]:
        servers = self.properties["bootstrap.servers"].split(",")
        return frozenset(server.strip() for server in servers)

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        yield "properties", masked(self.properties)


class ControllerSettings(Section):
    host: str = "127.0.0.1"
    """Address REST listens on. There is no login: open it no wider than you must."""
    port: Port = 9000
    """Of REST; 0: any free one, shown in the live node."""
    metrics_port: Port = 0
    """Of the daemon's own metrics (0: any free one); REST serves the fleet's at `/metrics`."""
    rebalance_delay_s: NotNegative = 120.0
    """How long the partitions of a vanished worker wait for it. 120 s: a rolling restart moves
    nothing."""
    join_delay_s: NotNegative = 10.0
    """How long after the last join new workers get their share: a fleet that starts moves once."""
    handover_timeout_s: Positive = 30.0
    """How long a worker may take to let go of a partition before it is evicted. 30 s: behind a target
    that does not answer a healthy one takes up to 25 s."""
    balance_ratio: Annotated[float, Field(ge=1.05, allow_inf_nan=False)] = 1.2
    """A worker that copies more than so many times the average is relieved. 1.2: rates differ by a
    few per cent all the time, and each move interrupts a partition for a moment."""
    balance_moves: Annotated[int, Field(ge=0)] = 10
    """At most so many moves a minute to even out what workers copy; 0: none. Workers that are lost,
    new or emptied are not held back by it."""


class WorkerSettings(Section):
    slots: int = Field(default=2, ge=1, le=256)
    """Copiers of this worker, each a Spark task of one core. 2: one core each for both ways of a
    partition on the smallest machine that makes sense."""
    host: str = "127.0.0.1"
    """Address of `/status` and `/metrics`."""
    port: Port = 0
    """0: any free one, shown in the live node."""
    commit_interval_s: Positive = 1.0
    """Time between two commits of positions: at most so much is repeated after a crash."""
    buffer_bytes: int = Field(default=64 * 1024 * 1024, ge=16 * 1024 * 1024)
    """Bytes a slot may hold between fetch and acknowledgement; a slow target then slows the fetch.
    64 MiB: 100 ms at 5 Gbit/s."""
    drain_timeout_s: Positive = 30.0
    """How long a stop waits for what is under way. 30 s: what Kubernetes grants before it kills."""
    watchdog_s: Positive = 60.0
    """A worker whose loop took no step for so long ends itself; another takes over."""
    spark: Mapping[str, PropertyText] = Field(default_factory=dict)
    """Spark's own properties; an empty or missing `spark.master` is `local[slots+1]`."""

    @property
    def spark_master(self) -> str:
        return self.spark.get("spark.master") or f"local[{self.slots + 1}]"

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        for name, value in super().__repr_args__():
            yield name, masked(self.spark) if name == "spark" else value


class Settings(Section):
    """The whole tree. `load_settings` makes it; nothing changes it."""

    fleet: str = Field(pattern=r"^[a-zA-Z0-9_-]{1,100}$")
    """Name of the deployment: it is in ZooKeeper's paths, group names and transactional ids."""
    zookeeper: ZookeeperSettings
    clusters: Mapping[str, ClusterSettings]
    """Name -> how to reach it, in librdkafka's words; `bootstrap.servers` at least."""
    routes: tuple[RouteConfig, ...]
    """Which cluster is copied to which; at least one."""
    controller: ControllerSettings = ControllerSettings()
    worker: WorkerSettings = WorkerSettings()

    @model_validator(mode="after")
    def _related(self) -> Settings:
        faults = list(
            _relations(self.clusters, self.routes, self.zookeeper, self.controller, self.worker)
        )
        if faults:
            raise Faults(faults)
        return self

    def cluster(self, name: str) -> Mapping[str, str]:
        """Properties of a cluster that a route names."""
        return self.clusters[name].properties


def load_settings(
    path: str | Path, *, environ: Mapping[str, str], overrides: Sequence[str] = ()
) -> Settings:
    """File, then environment, then overrides (see `layers`). Raises ConfigurationError.

    The error's text has one line per fault, each with the key it is about.
    """
    try:
        tree, faults = merged_tree(
            Path(path),
            environ=environ,
            overrides=overrides,
            sections=tuple(Settings.model_fields),
        )
    except Unreadable as error:
        raise ConfigurationError(str(error)) from error
    try:
        settings = Settings.model_validate(tree)
    except ValidationError as error:
        faults += _faults_of(error)
        faults += [fault for fault in _relations_of(tree) if fault not in faults]
    if faults:
        raise ConfigurationError("\n".join(f"{path}: {fault}" for fault in faults))
    return settings


def _relations(
    clusters: Mapping[str, ClusterSettings] | None,
    routes: Sequence[RouteConfig] | None,
    zookeeper: ZookeeperSettings | None,
    controller: ControllerSettings | None,
    worker: WorkerSettings | None,
) -> Iterator[Fault]:
    """What two sections must agree on; a section that is broken in itself is None."""
    for name in clusters or ():
        if not _CLUSTER_NAME.fullmatch(name):
            yield Fault(f"clusters.{name}", "a name has only a-z, 0-9 and -")
    if routes is not None:
        if not routes:
            yield Fault("routes", "at least one is required")
        yield from _route_relations(clusters, routes)
        yield from _target_relations(routes)
    if zookeeper and controller:
        delay_s, timeout_s = controller.rebalance_delay_s, zookeeper.session_timeout_s
        if 0 < delay_s < timeout_s:
            yield Fault(
                "controller.rebalance_delay_s",
                f"{delay_s:g} is below zookeeper.session_timeout_s ({timeout_s:g}): a worker that"
                " is only slow would lose its partitions; use 0 to move them at once",
            )
    if worker and worker.watchdog_s <= worker.commit_interval_s:
        yield Fault("worker.watchdog_s", "must be above worker.commit_interval_s")


def _route_relations(
    clusters: Mapping[str, ClusterSettings] | None, routes: Sequence[RouteConfig]
) -> Iterator[Fault]:
    seen: set[Route] = set()
    for number, config in enumerate(routes):
        key = f"routes.{number}"
        for end in ("source", "target"):
            name = getattr(config, end)
            if clusters is not None and name not in clusters:
                known = ", ".join(sorted(clusters)) or "none"
                yield Fault(f"{key}.{end}", f"{name!r} is not among the clusters ({known})")
        if config.source == config.target:
            yield Fault(f"{key}.target", "is the source itself")
        elif clusters and _loops(config, clusters):
            yield Fault(f"{key}.target", "has the source's bootstrap.servers and no prefix: a loop")
        elif config.auto_whitelist.enabled and _comes_back(config, routes):
            yield Fault(
                f"{key}.auto_whitelist",
                f"topics would come back to {config.source} under their own names: give one of the"
                " routes on the way a naming.prefix",
            )
        if config.route in seen:
            yield Fault(key, f"the route {config.route} is there twice")
        seen.add(config.route)


def _comes_back(config: RouteConfig, routes: Sequence[RouteConfig]) -> bool:
    """Whether routes without a prefix lead from this one's target to its source."""
    if config.naming.prefix:
        return False
    reached, news = set[str](), {config.target}
    while news:
        reached |= news
        news = {
            each.target for each in routes if each.source in news and not each.naming.prefix
        } - reached
    return config.source in reached


def _loops(config: RouteConfig, clusters: Mapping[str, ClusterSettings]) -> bool:
    source, target = clusters.get(config.source), clusters.get(config.target)
    same = source and target and source.bootstrap & target.bootstrap
    return bool(same) and not config.naming.prefix and not config.naming.rename


def _target_relations(routes: Sequence[RouteConfig]) -> Iterator[Fault]:
    """Two source topics that would be mixed into one target topic, over all routes."""
    taken: dict[tuple[str, str], str] = {}
    for number, config in enumerate(routes):
        for source, target in config.naming.rename.items():
            where = taken.setdefault((config.target, target), f"{config.route}/{source}")
            if where != f"{config.route}/{source}":
                yield Fault(
                    f"routes.{number}.naming.rename.{source}",
                    f"{target!r} is already the target of {where}",
                )


def _faults_of(error: ValidationError) -> list[Fault]:
    """Every fault of pydantic's, in the words and with the keys of the file."""
    faults = []
    for detail in error.errors(include_url=False):
        key = ".".join(str(part) for part in detail["loc"] if part not in ("properties", "[key]"))
        cause = detail.get("ctx", {}).get("error")
        if isinstance(cause, Faults):
            faults += [
                Fault(".".join(filter(None, (key, fault.key))), fault.message)
                for fault in cause.faults
            ]
        else:
            faults.append(Fault(key, _in_words(detail["type"], detail["msg"])))
    return faults


def _in_words(kind: str, message: str) -> str:
    if kind == "missing":
        return "is required"
    if kind == "extra_forbidden":
        return "is not a known key"
    return message.removeprefix("Value error, ").removeprefix("Input ").removeprefix("String ")


def _relations_of(tree: Mapping[str, Any]) -> list[Fault]:
    """The relations between those sections that are sound in themselves."""

    def section(kind: Any, name: str, missing: Any = None) -> Any:
        try:
            return TypeAdapter(kind).validate_python(tree.get(name, missing))
        except ValidationError:
            return None

    return list(
        _relations(
            section(Mapping[str, ClusterSettings], "clusters"),
            section(tuple[RouteConfig, ...], "routes"),
            section(ZookeeperSettings, "zookeeper"),
            section(ControllerSettings, "controller", {}),
            section(WorkerSettings, "worker", {}),
        )
    )
