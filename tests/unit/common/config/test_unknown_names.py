"""Names that nothing has, in a configuration: all of them in one pass, each with what is similar."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

import confluent_kafka
import pytest

from ureplicator_common.config.properties import KAFKA_NAMES
from ureplicator_common.config.settings import load_settings
from ureplicator_common.errors import ConfigurationError
from ureplicator_common.kafka.security.settings import is_security

FILE = """
fleet: test
zookeeper: {hosts: 'z:1'}
clusters:
  west: {bootstrap.server: 'w:1', fetch.min.byts: 1, nonsense: 5}
  east: {bootstrap.servers: 'e:1', sasl.machanism: PLAIN}
  north: {bootstrap.servers: 'n:1', linger.ms: 5}
routes:
  - {source: wset, target: east}
  - {source: west, target: east}
  - {source: west, target: east, deliverey: exactly_once}
"""


def test_every_fault_is_reported_at_once(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(FILE)
    with pytest.raises(ConfigurationError) as refused:
        load_settings(path, environ={})
    assert set(str(refused.value).replace(f"{path}: ", "").splitlines()) == {
        "clusters.west.bootstrap.servers: is required",
        "clusters.west.bootstrap.server: unknown property; did you mean 'bootstrap.servers'?",
        "clusters.west.fetch.min.byts: unknown property; did you mean 'fetch.min.bytes'?",
        "clusters.west.nonsense: unknown property",
        "clusters.east.sasl.machanism: is not offered; did you mean 'sasl.mechanism'?",
        "routes.0.source: unknown cluster 'wset'; known are: east, north, west; did you mean 'west'?",
        "routes.2: duplicate route west.east",
        "routes.2.deliverey: unknown key; did you mean 'delivery'?",
    }


def test_properties_are_those_of_librdkafka(tmp_path: Path) -> None:
    shown = tmp_path / "properties"
    libraries = Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs"
    (path,) = libraries.glob("librdkafka*")
    library, c = ctypes.CDLL(str(path)), ctypes.CDLL(None)
    c.fopen.restype = ctypes.c_void_p
    file = ctypes.c_void_p(c.fopen(str(shown).encode(), b"w"))
    library.rd_kafka_conf_properties_show(file)
    c.fclose(file)
    found = set(re.findall(r"^([a-z][a-z0-9._]+) +\|", shown.read_text(), re.MULTILINE))
    assert found >= KAFKA_NAMES
    left = {name for name in found - KAFKA_NAMES if "." in name and not is_security(name)}
    assert left == set()
