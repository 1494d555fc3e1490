"""The whole configuration, read and checked once at start.

Controllers and workers read the same file, so the two cannot disagree. Three sources are merged (see
`sources`): the YAML file, the environment and `--set`. `load_settings` reports every fault at once,
each on its own line with its key: a rollout that fails five times for five mistakes is five outages.
Unknown keys are faults too, because a misspelt key would silently leave the default in place.

The sections are frozen models. The docstring below a field is its description in the reference table
of the documentation; a unit ends the field's name. Checks of one section stand in its class, checks
across sections in `relations`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from ureplicator_common.config.audit import AuditSettings
from ureplicator_common.config.clusters import ClusterSettings, ZookeeperSettings
from ureplicator_common.config.pages import PagesSettings, page_faults
from ureplicator_common.config.relations import relation_faults
from ureplicator_common.config.roles import ControllerSettings, WorkerSettings
from ureplicator_common.config.route import RouteConfig
from ureplicator_common.config.section import Fault, Faults, Section, faults_of
from ureplicator_common.config.sources import merge_sources
from ureplicator_common.config.spark import driver_faults, spark_properties
from ureplicator_common.config.yaml_file import UnreadableFile
from ureplicator_common.errors import ConfigurationError

S = TypeVar("S", bound=Section)


class Settings(Section):
    """The root of the tree; `load_settings` builds it."""

    fleet: str = Field(pattern=r"^[a-zA-Z0-9_-]{1,100}$")
    """Name of the deployment, part of ZooKeeper paths, consumer group names and transactional ids."""
    zookeeper: ZookeeperSettings
    clusters: Mapping[str, ClusterSettings]
    """Kafka clusters: name -> librdkafka properties, at least `bootstrap.servers`. `client.id` begins the
    names of the copiers in the cluster's logs, metrics and quotas: `<client.id>-<fleet>-<worker>-<slot>`;
    default `ureplicator`."""
    routes: tuple[RouteConfig, ...]
    """Pairs of source and target cluster; at least one."""
    controller: ControllerSettings = ControllerSettings()
    worker: WorkerSettings = WorkerSettings()
    audit: AuditSettings = AuditSettings()
    pages: PagesSettings = PagesSettings()

    @model_validator(mode="after")
    def _related(self) -> Settings:
        faults = list(
            relation_faults(
                zookeeper=self.zookeeper,
                clusters=self.clusters,
                routes=self.routes,
                controller=self.controller,
                worker=self.worker,
            )
        )
        faults += page_faults(self.pages, self._page_hosts)
        faults += driver_faults("audit.spark", self.audit.spark)
        if faults:
            raise Faults(faults)
        return self

    @property
    def _page_hosts(self) -> Mapping[str, str]:
        return {
            "controller.host": self.controller.host,
            "worker.bind": self.worker.bind,
            "audit.host": self.audit.host,
        }

    def cluster(self, name: str) -> Mapping[str, str]:
        """Properties of a cluster that a route names."""
        return self.clusters[name].properties

    @property
    def spark_properties(self) -> dict[str, str]:
        """Spark properties of a worker, without secrets and its own files."""
        return spark_properties(self.worker, self.routes)


def load_settings(
    path: str | Path, *, environ: Mapping[str, str], overrides: Sequence[str] = ()
) -> Settings:
    """Merge file, environment and overrides, and check the result. Raises ConfigurationError.

    The error's text has one line per fault, each with its key.
    """
    try:
        tree, faults = merge_sources(
            Path(path),
            environ=environ,
            overrides=overrides,
            sections=tuple(Settings.model_fields),
        )
    except UnreadableFile as error:
        raise ConfigurationError(str(error)) from error
    try:
        settings = Settings.model_validate(tree)
    except ValidationError as error:
        faults += faults_of(error, root=Settings)
        faults += [fault for fault in _relations_of(tree) if fault not in faults]
    if faults:
        raise ConfigurationError("\n".join(f"{path}: {fault}" for fault in faults))
    return settings


def _relations_of(tree: Mapping[str, Any]) -> list[Fault]:
    """Relations between the sections that are valid in themselves."""

    def section(kind: Any, name: str, missing: Any = None) -> Any:
        try:
            return TypeAdapter(kind).validate_python(tree.get(name, missing))
        except ValidationError:
            return None

    return list(
        relation_faults(
            zookeeper=section(ZookeeperSettings, "zookeeper"),
            clusters=_each_cluster(tree.get("clusters")),
            routes=section(tuple[RouteConfig, ...], "routes") or _ends_alone(tree.get("routes")),
            controller=section(ControllerSettings, "controller", {}),
            worker=section(WorkerSettings, "worker", {}),
        )
    )


def _each_cluster(raw: object) -> Mapping[str, ClusterSettings | None] | None:
    """Clusters by name; None in place of one that is invalid in itself."""
    if not isinstance(raw, Mapping):
        return None
    return {str(name): _valid(ClusterSettings, properties) for name, properties in raw.items()}


def _ends_alone(raw: object) -> tuple[RouteConfig, ...] | None:
    """Routes of which some have other faults: their ends and names of topics, if all of them have these."""
    if not isinstance(raw, Sequence) or not all(isinstance(route, Mapping) for route in raw):
        return None
    given = [{name: route[name] for name in _ENDS if name in route} for route in raw]
    found = [_valid(RouteConfig, route) for route in given]
    return None if None in found else tuple(route for route in found if route is not None)


_ENDS = ("source", "target", "naming", "auto_whitelist")


def _valid(kind: type[S], raw: object) -> S | None:
    try:
        return kind.model_validate(raw)
    except ValidationError:
        return None
