"""Variables with which the JVMs of Spark that a test starts by itself start at half the cost."""

from __future__ import annotations

from collections.abc import Mapping

from ureplicator_testkit.servers.java import QUICK_START
from ureplicator_worker.engines import class_archive


def environment() -> Mapping[str, str]:
    return {
        "SPARK_SUBMIT_OPTS": " ".join((*QUICK_START, *class_archive.options())),
        "SPARK_LAUNCHER_OPTS": " ".join(QUICK_START),
    }
