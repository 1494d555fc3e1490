"""Settings: three sources, one tree, and every fault reported at once."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import dedent

import pytest
import yaml
from pydantic import ValidationError

from ureplicator_common.config.properties import MASK
from ureplicator_common.config.route import RouteConfig
from ureplicator_common.config.settings import Settings, load_settings
from ureplicator_common.errors import ConfigurationError
from ureplicator_common.model import (
    BROKER_DEFAULT_REPLICATION,
    Delivery,
    GapPolicy,
    HandlerSettings,
    LaneKind,
    Route,
    SqlSettings,
)

MINIMAL = """
fleet: local
zookeeper: {hosts: "127.0.0.1:2181"}
clusters:
  source: {bootstrap.servers: "127.0.0.1:19092"}
  target: {bootstrap.servers: "127.0.0.1:29092"}
routes:
  - {source: source, target: target}
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path


def load(
    home: Path,
    text: str = MINIMAL,
    *,
    environ: Mapping[str, str] | None = None,
    overrides: Sequence[str] = (),
) -> Settings:
    path = home / "fleet.yaml"
    path.write_text(dedent(text))
    return load_settings(path, environ=environ or {}, overrides=overrides)


def faults(home: Path, text: str = MINIMAL, **layers: object) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        load(home, text, **layers)  # type: ignore[arg-type]
    return [line.replace(f"{home / 'fleet.yaml'}: ", "") for line in str(caught.value).split("\n")]


def test_defaults_of_a_minimal_file(home: Path) -> None:
    settings = load(home)
    assert settings.fleet == "local"
    assert settings.zookeeper.session_timeout_s == 10
    assert settings.controller.port == 9000
    assert settings.controller.rebalance_delay_s == 120
    assert settings.controller.join_delay_s == 10
    assert settings.controller.handover_timeout_s == 30
    assert settings.worker.slots == 2
    assert settings.worker.buffer_bytes == 64 * 1024 * 1024
    assert settings.worker.spark_master == "local[3]"
    assert settings.cluster("source") == {"bootstrap.servers": "127.0.0.1:19092"}


def test_a_route_as_the_model_has_it(home: Path) -> None:
    text = MINIMAL.replace(
        "{source: source, target: target}",
        "{source: source, target: target, start: latest, on_gap: earliest, verify_crc: false,"
        " naming: {prefix: dc1., rename: {a: b}}}",
    )
    (config,) = load(home, text).routes
    assert config.route == Route("source", "target")
    assert config.settings.delivery is Delivery.EXACTLY_ONCE
    assert config.settings.start == "latest"
    assert config.settings.on_gap is GapPolicy.EARLIEST
    assert not config.settings.verify_crc
    assert config.settings.target_topic("a") == "b"
    assert config.settings.target_topic("c") == "dc1.c"


def test_transactions_that_would_outlive_their_time_out_are_refused(home: Path) -> None:
    assert load(home, MINIMAL + "worker: {transaction_interval_ms: 30000}\n")
    (fault,) = faults(home, MINIMAL + "worker: {transaction_interval_ms: 30001}\n")
    assert "worker.transaction_interval_ms: expected at most 30000: a transaction must be" in fault


def test_replicas_of_target_topics(home: Path) -> None:
    assert load(home, MINIMAL).routes[0].replication_factor == BROKER_DEFAULT_REPLICATION
    text = MINIMAL.replace("target: target}", "target: target, replication_factor: 3}")
    assert load(home, text).routes[0].replication_factor == 3


@pytest.mark.parametrize("number", ["0", "-2", "40000", "two"])
def test_replicas_that_no_topic_can_have(home: Path, number: str) -> None:
    text = MINIMAL.replace("target: target}", f"target: target, replication_factor: {number}}}")
    with pytest.raises(ConfigurationError, match="replication_factor"):
        load(home, text)


@pytest.mark.parametrize(
    ("start", "wanted"),
    [
        ("earliest", "earliest"),
        ("latest", "latest"),
        ("0", "0"),
        ("1700000000000", "1700000000000"),
        ("'1700000000000'", "1700000000000"),
        ("2024-01-01", "1704067200000"),
        ("2024-01-01T00:00:00Z", "1704067200000"),
        ("'2024-01-01T01:00:00+01:00'", "1704067200000"),
        ("2024-01-01T00:00:00.250", "1704067200250"),
    ],
)
def test_start(home: Path, start: str, wanted: str) -> None:
    text = MINIMAL.replace("target: target}", f"target: target, start: {start}}}")
    assert load(home, text).routes[0].start == wanted


@pytest.mark.parametrize("start", ["yesterday", "-5", "true", "[1]", "1.5"])
def test_an_invalid_start(home: Path, start: str) -> None:
    text = MINIMAL.replace("target: target}", f"target: target, start: {start}}}")
    (fault,) = faults(home, text)
    assert fault.startswith("routes.0.start: expected earliest, latest, an ISO 8601 time")


def test_later_sources_win(home: Path) -> None:
    text = MINIMAL + "controller: {port: 1, metrics_port: 1, join_delay_s: 1}\n"
    environ = {"UREPLICATOR_CONTROLLER__PORT": "2", "UREPLICATOR_CONTROLLER__METRICS_PORT": "2"}
    settings = load(home, text, environ=environ, overrides=["controller.port=3"])
    assert settings.controller.port == 3
    assert settings.controller.metrics_port == 2
    assert settings.controller.join_delay_s == 1


def test_keys_with_dots_can_be_set_in_every_source(home: Path) -> None:
    environ = {
        "UREPLICATOR_CLUSTERS__MY_DC__BOOTSTRAP_SERVERS": "a:1",
        "UREPLICATOR_WORKER__SPARK__SPARK_UI_ENABLED": "false",
        "UREPLICATOR_ROUTES__0__START": "latest",
    }
    overrides = ["clusters.source.client.id=me", "worker.spark.spark.master=spark://localhost:7077"]
    settings = load(home, environ=environ, overrides=overrides)
    assert settings.cluster("my-dc") == {"bootstrap.servers": "a:1"}
    assert settings.worker.spark["spark.ui.enabled"] == "false"
    assert settings.worker.spark_master == "spark://localhost:7077"
    assert settings.routes[0].start == "latest"
    assert settings.cluster("source")["client.id"] == "me"


def test_variables_that_are_not_configuration_are_ignored(home: Path) -> None:
    others = {"UREPLICATOR_URL": "http://x", "UREPLICATOR_WSGI_CONFIG": "{}", "PATH": ""}
    assert load(home, environ=others) == load(home)


def test_a_misspelt_variable_is_a_fault(home: Path) -> None:
    assert faults(home, environ={"UREPLICATOR_CONTROLLER__PROT": "1"}) == [
        "controller.prot: unknown key; did you mean 'port'?"
    ]


def test_every_fault_is_reported_with_its_key(home: Path) -> None:
    text = """
    fleet: "a.b"
    zookeper: {}
    clusters:
      Source: {client.id: 1}
      target: {bootstrap.servers: "x:1", security.protocol: SASL_SSL}
      third: {bootstrap.servers: [a]}
    routes:
      - {source: source, target: target, delivery: twice,
         on_gap: never, naming: {rename: {a: "b c"}}}
      - {source: source}
    controller: {port: 70000, rebalance_delay_s: -1}
    worker: {slots: 0, watchdog_s: .inf}
    """
    assert faults(home, text, overrides=["nonsense"]) == [
        "--set: 'nonsense' is not of the form key=value",
        "fleet: should match pattern '^[a-zA-Z0-9_-]{1,100}$'",
        "zookeeper: is required",
        "clusters.Source.bootstrap.servers: is required",
        "clusters.target.sasl.mechanism: expected one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512,"
        " OAUTHBEARER",
        "clusters.third.bootstrap.servers: expected a string, number or boolean",
        "routes.0.delivery: unknown value 'twice', expected at_least_once or exactly_once",
        "routes.0.on_gap: should be 'stop', 'earliest' or 'latest'",
        "routes.0.naming.rename.a: 'b c' is not a legal topic name",
        "routes.1.target: is required",
        "controller.port: should be less than or equal to 65535",
        "controller.rebalance_delay_s: should be greater than or equal to 0",
        "worker.slots: should be greater than or equal to 1",
        "worker.watchdog_s: should be a finite number",
        "zookeper: unknown key; did you mean 'zookeeper'?",
        "clusters.Source: a cluster name may only contain a-z, 0-9 and -",
    ]


@pytest.mark.parametrize(
    "servers",
    ["a", "a:", ":9092", "a:b", "a:0", "a:70000", "SSL://a:9092", "a:1,", "a:1;b:2", "::1:2"],
)
def test_a_bootstrap_server_without_host_or_port(home: Path, servers: str) -> None:
    override = f"clusters.source.bootstrap.servers='{servers}'"
    (fault,) = faults(home, MINIMAL, overrides=[override])
    assert fault.startswith(f"clusters.source.bootstrap.servers: '{servers}' is not host:port")


@pytest.mark.parametrize("servers", ["a:1", "a.b-c_d:9092, 10.0.0.1:2", "[::1]:9092"])
def test_bootstrap_servers(home: Path, servers: str) -> None:
    override = f"clusters.source.bootstrap.servers='{servers}'"
    assert (
        load(home, MINIMAL, overrides=[override]).cluster("source")["bootstrap.servers"] == servers
    )


def test_relations_are_reported_beside_faults_elsewhere(home: Path) -> None:
    text = """
    fleet: ""
    zookeeper: {hosts: "h:1", session_timeout_s: 30}
    clusters:
      a: {bootstrap.servers: "x:1"}
      b: {bootstrap.servers: "y:1"}
      B_2: {bootstrap.servers: "z:1"}
      twin: {bootstrap.servers: "x:1"}
    routes:
      - {source: a, target: b, naming: {rename: {t: one}}}
      - {source: a, target: b}
      - {source: a, target: a}
      - {source: nowhere, target: b, naming: {rename: {u: one}}}
      - {source: a, target: twin}
    controller: {rebalance_delay_s: 20}
    worker: {watchdog_s: 1, commit_interval_s: 2}
    """
    found = faults(home, text)
    assert found[0].startswith("fleet: ")
    assert found[1:] == [
        "clusters.B_2: a cluster name may only contain a-z, 0-9 and -",
        "routes.1: duplicate route a.b",
        "routes.2.target: is the same cluster as the source",
        "routes.3.source: unknown cluster 'nowhere'; known are: B_2, a, b, twin",
        "routes.4.target: has the same bootstrap.servers as the source and no naming.prefix: a loop",
        "routes.3.naming.rename.u: 'one' is already the target of a.b/t",
        "controller.rebalance_delay_s: 20 is below zookeeper.session_timeout_s (30): a worker that"
        " is only slow would lose its partitions; use 0 to move them at once",
        "worker.watchdog_s: must be above worker.commit_interval_s",
    ]


def test_a_delay_of_zero_moves_at_once(home: Path) -> None:
    settings = load(home, overrides=["controller.rebalance_delay_s=0"])
    assert settings.controller.rebalance_delay_s == 0


def test_two_sources_for_one_target_topic(home: Path) -> None:
    text = MINIMAL.replace("target: target}", "target: target, naming: {rename: {a: x, b: x}}}")
    assert faults(home, text) == [
        "routes.0.naming.rename.b: 'x' is already the target of 'a'",
    ]


def test_a_key_twice_in_the_file(home: Path) -> None:
    (fault,) = faults(home, MINIMAL + "fleet: other\n")
    assert fault.endswith("fleet.yaml:9:1: duplicate key 'fleet'")


def test_a_missing_file_is_one_line(home: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_settings(home / "no.yaml", environ={})
    assert str(caught.value) == f"{home / 'no.yaml'}: cannot be read: No such file or directory"


@pytest.mark.parametrize(
    "text", ["[1, 2]", "just words", "a: [1", "a:\n\tb: 1", "a: &x [*x]\n*y: 1"]
)
def test_a_file_that_is_no_mapping(home: Path, text: str) -> None:
    assert len(faults(home, text)) == 1


def test_a_file_that_is_nested_too_deep(home: Path) -> None:
    text = "[" * 5_000
    assert faults(home, f"a: {text}") == ["lists or mappings are nested too deep"]
    (fault,) = faults(home, overrides=[f"fleet={text}"])
    assert fault.startswith("fleet: ")


@pytest.mark.parametrize("key", ["worker.slots", "worker.commit_interval_s", "controller.port"])
def test_truth_is_no_number(home: Path, key: str) -> None:
    assert faults(home, overrides=[f"{key}=yes"]) == [f"{key}: expected a number, not true"]


def test_a_section_of_another_form_is_refused_in_terms_of_yaml(home: Path) -> None:
    text = MINIMAL.replace("  - {source: source, target: target}", "") + "worker:\n"
    assert faults(home, text) == ["routes: expected a list", "worker: expected a mapping"]
    text = MINIMAL.replace("{source: source, target: target}", "source.target")
    assert faults(home, text) == ["routes.0: expected a mapping"]


def test_an_empty_file_names_what_is_required(home: Path) -> None:
    assert faults(home, "") == [
        f"{key}: is required" for key in ("fleet", "zookeeper", "clusters", "routes")
    ]


@pytest.mark.parametrize(
    "override", ["routes.7.start=latest", "fleet.name=x", "routes.x=1", "fleet.a.b=1"]
)
def test_overrides_of_missing_entries(home: Path, override: str) -> None:
    (fault, *_) = faults(home, overrides=[override])
    assert override.partition("=")[0] in fault


def test_secrets_do_not_show(home: Path) -> None:
    overrides = [
        "clusters.source.security.protocol=SASL_SSL",
        "clusters.source.sasl.mechanism=PLAIN",
        "clusters.source.sasl.username=me",
        "clusters.source.ssl.certificate.location=c",
        "clusters.source.ssl.key.location=k",
    ]
    environ = {
        "UREPLICATOR_CLUSTERS__SOURCE__SASL_PASSWORD": "hunter2",
        "UREPLICATOR_CLUSTERS__SOURCE__SSL_KEY_PASSWORD": "hunter2",
        "UREPLICATOR_WORKER__SPARK__SPARK_SSL_KEYPASSWORD": "hunter2",
    }
    settings = load(home, environ=environ, overrides=overrides)
    assert settings.cluster("source")["sasl.password"] == "hunter2"
    assert "hunter2" not in repr(settings) + str(settings)
    assert MASK in repr(settings)
    assert "127.0.0.1:19092" in repr(settings)


def test_yaml_scalars_become_property_texts(home: Path) -> None:
    text = MINIMAL.replace(
        '"127.0.0.1:19092"',
        '"127.0.0.1:19092", socket.timeout.ms: 5000, log_level: yes, retries: 1.5',
    )
    properties = load(home, text).cluster("source")
    assert properties["socket.timeout.ms"] == "5000"
    assert properties["log_level"] == "true"
    assert properties["retries"] == "1.5"


def test_the_tree_is_frozen(home: Path) -> None:
    settings = load(home)
    with pytest.raises(ValueError, match="frozen"):
        settings.fleet = "other"


THREE = """
fleet: f
zookeeper: {hosts: "127.0.0.1:2181"}
clusters:
  a: {bootstrap.servers: "127.0.0.1:1"}
  b: {bootstrap.servers: "127.0.0.1:2"}
  c: {bootstrap.servers: "127.0.0.1:3"}
"""


def routes(*ways: str, auto: str = "", prefixed: str = "") -> str:
    """A file with these routes; `ab` is from a to b. `auto`, `prefixed`: routes with that setting."""
    lines = []
    for way in ways:
        extra = ", auto_whitelist: {enabled: true}" if way in auto.split() else ""
        extra += ", naming: {prefix: x.}" if way in prefixed.split() else ""
        lines.append(f"- {{source: {way[0]}, target: {way[1]}{extra}}}")
    return THREE + "routes:\n" + "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    "text",
    [
        routes("ab", auto="ab"),
        routes("ab", "bc", auto="ab bc"),
        routes("ab", "ba"),
        routes("ab", "ba", auto="ab ba", prefixed="ab"),
        routes("ab", "bc", "ca", auto="ab", prefixed="ca"),
        routes("ab", "bc", "cb", auto="ab", prefixed=""),
    ],
)
def test_auto_whitelisting_is_accepted_where_topics_cannot_return(home: Path, text: str) -> None:
    assert load(home, text).routes


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (routes("ab", "ba", auto="ba"), r"routes\.1\.auto_whitelist"),
        (routes("ab", "bc", "ca", auto="ab"), r"routes\.0\.auto_whitelist"),
    ],
)
def test_auto_whitelisting_is_refused_where_topics_would_return(
    home: Path, text: str, key: str
) -> None:
    with pytest.raises(ConfigurationError, match=f"{key}: topics would be copied back"):
        load(home, text)


HANDLER = "{topics: 'orders.*', handler: 'shop.orders:make'}"


def test_handlers_of_a_route(home: Path) -> None:
    more = "args: {b: [1, x], a: null}, on_handler_error: dead_letter, dead_letter_topic: dead"
    text = HANDLER.replace("}", f", {more}, timeout_s: 2, memory_mib: 100}}")
    (config,) = load(home, MINIMAL, overrides=[f"routes.0.handlers=[{text}]"]).routes
    settings = config.settings.transform("orders-eu")
    assert settings == HandlerSettings(
        topics="orders.*",
        handler="shop.orders:make",
        args='{"a": null, "b": [1, "x"]}',
        dead_letter_topic="dead",
        timeout_s=2.0,
        memory_bytes=100 << 20,
    )
    assert config.settings.transform("my-orders") is None


@pytest.mark.parametrize(
    ("handlers", "fault"),
    [
        ("{topics: 'a('", "0.topics: 'a(' is not a regular expression: missing )"),
        ("{handler: 'shop.orders'", "0.handler: 'shop.orders' is not of the form package.module"),
        ("{handler: 'shop/orders:make'", "0.handler: 'shop/orders:make' is not of the form"),
        ("{args: {a: 2024-01-01}", "0.args: not representable in JSON: Object of type date"),
        ("{args: {a: .nan}", "0.args: not representable in JSON: Out of range float"),
        ("{on_handler_error: dead_letter", "0.dead_letter_topic: is required"),
        ("{dead_letter_topic: dead", "0.dead_letter_topic: needs on_handler_error: dead_letter"),
        ("{on_handler_error: skip", "0.on_handler_error: should be 'stop' or 'dead_letter'"),
        ("{timeout_s: 0", "0.timeout_s: should be greater than 0"),
        ("{memory_mib: 1", "0.memory_mib: should be greater than or equal to 64"),
        ("{topic: a", "0.topic: unknown key"),
    ],
)
def test_a_handler_that_is_no_good(home: Path, handlers: str, fault: str) -> None:
    given = yaml.safe_load(HANDLER) | yaml.safe_load(handlers + "}")
    found = faults(home, MINIMAL, overrides=[f"routes.0.handlers={yaml.safe_dump([given])}"])
    assert len(found) == 1
    assert found[0].startswith(f"routes.0.handlers.{fault}")


QUERY = {"topics": "orders", "query": " SELECT value\nFROM records "}


def test_the_query_of_a_topic_is_published() -> None:
    config = RouteConfig(
        source="a",
        target="b",
        handlers=({"topics": "orders-eu", "handler": "shop:make"},),  # type: ignore[arg-type]
        sql=({**QUERY, "topics": "orders.*", "max_mib": 2, "memory_mib": 600},),  # type: ignore[arg-type]
    )
    found = config.settings.transform("orders")
    assert found == SqlSettings(
        "orders.*", "SELECT value\nFROM records", max_bytes=2 << 20, memory_bytes=600 << 20
    )
    assert config.settings.lane("orders-eu") is LaneKind.HANDLER
    assert config.settings.lane("clicks") is LaneKind.RAW


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"query": "DELETE FROM records"}, "expected SELECT ... FROM records"),
        ({"topics": "("}, "not a regular expression"),
        ({"udfs": ["shop"]}, "not of the form package.module:register"),
        ({"memory_mib": 100}, "512"),
        ({"max_rows": 0}, "1"),
    ],
)
def test_a_query_of_the_wrong_form_is_refused(wrong: dict[str, object], reason: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(reason)):
        RouteConfig(source="a", target="b", sql=({**QUERY, **wrong},))  # type: ignore[arg-type]
