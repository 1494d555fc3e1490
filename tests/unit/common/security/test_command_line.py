"""Secrets on a command line are refused; places of secrets are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from ureplicator_common.config.settings import load_settings
from ureplicator_common.errors import ConfigurationError

CONFIG = """
fleet: local
zookeeper: {hosts: "z:1"}
clusters: {a: {bootstrap.servers: "a:1"}, b: {bootstrap.servers: "b:1"}}
routes: [{source: a, target: b}]
"""
PLANTED = "planted-" + "4f1c"


@pytest.mark.parametrize(
    "key",
    [
        "clusters.a.sasl.password",
        "clusters.a.ssl.key.password",
        "clusters.a.ssl.key.pem",
        "clusters.a.sasl.oauthbearer.client.secret",
        "clusters.a.SASL.PASSWORD",
        "worker.spark.spark.authenticate.secret",
    ],
)
def test_a_secret_is_refused_and_not_repeated(tmp_path: Path, key: str) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(CONFIG)
    with pytest.raises(ConfigurationError, match="command lines") as raised:
        load_settings(path, environ={}, overrides=[f"{key}={PLANTED}"])
    assert PLANTED not in str(raised.value)


@pytest.mark.parametrize(
    "override", ["worker.spark_secret_file=/run/s", "zookeeper.digest_file=/run/d"]
)
def test_the_place_of_a_secret_may_be_set(tmp_path: Path, override: str) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(CONFIG)
    load_settings(path, environ={}, overrides=[override])
