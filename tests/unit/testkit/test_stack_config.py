"""The configuration that `scripts/stack`, the demo and the benchmarks write."""

import yaml

from ureplicator_testkit.servers.stack import FLEET, config_text

SERVERS = {"zookeeper": "127.0.0.1:1", "source": "127.0.0.1:2", "target": "127.0.0.1:3"}


def test_the_copiers_run_on_the_workers_own_machine_by_default() -> None:
    config = yaml.safe_load(config_text(**SERVERS))
    assert config["zookeeper"]["hosts"] == "127.0.0.1:1"
    assert config["clusters"]["target"] == {"bootstrap.servers": "127.0.0.1:3"}
    assert "spark" not in config["worker"]


def test_the_copiers_run_on_a_cluster_if_its_master_is_named() -> None:
    config = yaml.safe_load(config_text(**SERVERS, spark_master="spark://127.0.0.1:4"))
    assert config["worker"]["spark"]["spark.master"] == "spark://127.0.0.1:4"


def test_the_fleet_is_the_one_that_the_demo_starts_on_servers_of_its_own() -> None:
    """One more worker that is started from the file joins it."""
    assert yaml.safe_load(config_text(**SERVERS))["fleet"] == FLEET
