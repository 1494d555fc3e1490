"""Registry of a process' metrics: every sample is labelled with the fleet.

One Prometheus often scrapes several fleets. Without the label their series differ by address alone, so that
`max(...)` over them shows a healthy fleet in place of a broken one.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector


class FleetRegistry(CollectorRegistry):
    """Registry that adds the label `fleet` to whatever is registered."""

    def __init__(self, fleet: str) -> None:
        super().__init__(auto_describe=False)
        self._fleet = fleet

    def register(self, collector: Collector) -> None:
        super().register(_Labelled(collector, self._fleet))


class _Labelled:
    """A collector whose samples name the fleet, also where `?name[]=` asks for some of them."""

    def __init__(self, collector: Collector, fleet: str) -> None:
        self._collector = collector
        self._label = {"fleet": fleet}

    def describe(self) -> Iterable[Metric]:
        """The families, for the registry to know their names; none of a collector that does not tell."""
        describe = getattr(self._collector, "describe", tuple)
        return list(describe())

    def collect(self) -> Iterable[Metric]:
        for family in self._collector.collect():
            labelled = copy(family)
            labelled.samples = [
                sample._replace(labels={**self._label, **sample.labels})
                for sample in family.samples
            ]
            yield labelled
