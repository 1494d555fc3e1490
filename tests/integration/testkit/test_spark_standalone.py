"""The testkit's Spark cluster: it serves, its Spark workers and its master come back, and it ends."""

import pytest

from ureplicator_testkit.servers.processes import eventually
from ureplicator_testkit.spark.standalone import SparkStandalone

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]


def test_spark_standalone_comes_back_and_ends() -> None:
    with SparkStandalone(workers=2, cores=2) as spark:
        assert spark.free_cores() == 4
        assert spark.executors() == []
        spark.kill_worker(1)
        eventually(lambda: len(spark.live_workers()) == 1, 15, "the master misses it")
        spark.kill_master()
        assert spark.state() == {}
        spark.start()
        eventually(lambda: spark.free_cores() == 4, 40, "all cores are back")
        processes = spark.processes()
    assert [process.tree() for process in processes] == [[], [], []]
