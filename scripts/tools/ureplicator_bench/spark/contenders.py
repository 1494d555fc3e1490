"""Contenders of `--spark`: one slot on this machine, one on a Spark cluster, and Structured Streaming."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ureplicator_bench.contenders import Contender, OneProcess, Ours
from ureplicator_bench.load import Profile
from ureplicator_bench.servers import Servers
from ureplicator_common.model import Delivery
from ureplicator_testkit.servers.processes import Process
from ureplicator_testkit.spark.standalone import SparkStandalone

_ENTRY = "from ureplicator_bench.spark.micro_batches import main; main()"
"""Code of a process, not `-m`: functions of a main module are pickled whole for each task, and would
keep no producer."""


@contextmanager
def on_spark(servers: Servers, folder: Path, *, delivery: Delivery) -> Iterator[list[Contender]]:
    """All of them, with a cluster of one Spark worker."""
    here = {"slots": 1, "spark": {"spark.master": "local[1]"}}
    with SparkStandalone(workers=1, cores=1, folder=folder / "spark") as cluster:
        yield [
            Ours(servers, folder, delivery=delivery, kind="local[1]", worker=here),
            OnCluster(servers, folder, cluster, delivery=delivery),
            StructuredStreaming(servers, folder),
        ]


class OnCluster(Ours):
    """One slot in an executor of a standalone cluster; master and Spark worker count too."""

    def __init__(
        self, servers: Servers, folder: Path, cluster: SparkStandalone, *, delivery: Delivery
    ) -> None:
        spark = {"spark.master": cluster.url, "spark.executor.memory": "512m"}
        worker = {"slots": 1, "spark": spark}
        super().__init__(servers, folder, delivery=delivery, kind="cluster", worker=worker)
        self._cluster = cluster

    def processes(self) -> Sequence[Process]:
        return [*super().processes(), *self._cluster.processes()]


class StructuredStreaming(OneProcess):
    """A query of Structured Streaming in `local[1]` that does the same work (`micro_batches`)."""

    def __init__(self, servers: Servers, folder: Path) -> None:
        self.name = "Structured Streaming"
        self._servers, self._folder = servers, folder
        self._runs = 0

    def start(self, topics: Sequence[str], profile: Profile) -> None:
        self._runs += 1
        folder = self._folder / f"streaming-{self._runs}"
        folder.mkdir()
        source, target = self._servers.source.bootstrap, self._servers.target.bootstrap
        arguments = (source, target, ",".join(topics), profile.codec, folder / "checkpoint")
        command = [sys.executable, "-c", _ENTRY, *map(str, arguments)]
        log = folder / "streaming.log"
        self._process = Process("structured-streaming", command, log=log)
