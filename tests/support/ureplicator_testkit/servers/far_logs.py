"""Logs that begin far up, as after years of retention, without a record that was ever there.

An empty log is a file that is named after its first offset, so it begins wherever that name says. The broker
is stopped meanwhile: cleanly, or it would check its other logs from their beginning.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ureplicator_testkit.servers.clusters import KafkaCluster

NO_EPOCHS = "0\n0\n"
"""Leaders' epochs of a log that has had none: the version of the file, and how many follow."""


def begin_logs(cluster: KafkaCluster, topic: str, starts: Mapping[int, int]) -> None:
    """Restart a cluster of one broker, with these empty partitions of a topic beginning at these offsets."""
    cluster.shutdown()
    for number, start in starts.items():
        _begin(cluster.folder / "broker-1" / "data" / f"{topic}-{number}", start)
    cluster.restart()


def _begin(log: Path, start: int) -> None:
    for file in log.glob(f"{0:020d}.*"):
        assert not file.stat().st_size, f"{file} has something in it"
        file.rename(file.with_stem(f"{start:020d}"))
    (log / "leader-epoch-checkpoint").write_text(NO_EPOCHS)
