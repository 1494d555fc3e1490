"""Spark properties: what is pinned, refused, derived; which addresses executors can connect to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from ureplicator_common.config.roles import WorkerSettings
from ureplicator_common.config.route import RouteConfig
from ureplicator_common.config.spark import (
    PINS,
    REFUSED,
    On,
    driver_faults,
    overhead_mib,
    spark_faults,
    spark_properties,
)
from ureplicator_common.config.spark_master import Master, executors_elsewhere

STANDALONE = "spark://m1:7077,m2:7077"
HERE = "spark://127.0.0.1:7077"
KUBERNETES = "k8s://https://kubernetes.default.svc"
IMAGE = {"spark.kubernetes.container.image": "ureplicator:1"}
ROUTES = (RouteConfig(source="a", target="b"),)


def worker(
    master: str = "", spark: Mapping[str, str] | None = None, **fields: Any
) -> WorkerSettings:
    """A worker that any master accepts, but for what a test changes."""
    image = IMAGE if master.startswith("k8s") else {}
    cluster: dict[str, Any] = (
        {"bind": "0.0.0.0", "advertise": "10.0.0.6", "spark_secret_file": "/secret"}  # noqa: S104
        if master and not master.startswith("local")
        else {}
    )
    properties = {**({"spark.master": master} if master else {}), **image, **(spark or {})}
    return WorkerSettings.model_validate({"slots": 4, **cluster, "spark": properties, **fields})


def faults(settings: WorkerSettings, routes: tuple[RouteConfig, ...] = ROUTES) -> list[str]:
    return [str(fault) for fault in spark_faults(settings, routes)]


def properties(settings: WorkerSettings) -> dict[str, str]:
    assert faults(settings) == []
    return spark_properties(settings, ROUTES)


# Masters.


@pytest.mark.parametrize(
    ("url", "kind", "elsewhere"),
    [
        ("local", Master.LOCAL, False),
        ("local[5]", Master.LOCAL, False),
        ("local[*]", Master.LOCAL, False),
        ("spark://m:7077", Master.STANDALONE, True),
        (STANDALONE, Master.STANDALONE, True),
        (HERE, Master.STANDALONE, False),
        ("spark://localhost:7077,127.0.0.2:7077", Master.STANDALONE, False),
        ("spark://localhost:7077,m2:7077", Master.STANDALONE, True),
        (KUBERNETES, Master.KUBERNETES, True),
        ("k8s://https://127.0.0.1:6443", Master.KUBERNETES, True),
        ("k8s://h:6443", Master.KUBERNETES, True),
    ],
)
def test_masters(url: str, kind: Master, elsewhere: bool) -> None:
    assert Master.of(url) is kind
    assert executors_elsewhere(url) is elsewhere
    assert faults(worker(url)) == []


@pytest.mark.parametrize(
    "url", ["yarn", "local[4,3]", "local-cluster[1,1,1024]", "spark://m", "m:7077", "sc://m:15002"]
)
def test_other_masters_are_refused(url: str) -> None:
    """`local[4,3]` would start a copier three times; Spark Connect has no tasks of ours."""
    (fault,) = faults(worker(url))
    assert fault.startswith(f"worker.spark.spark.master: '{url}' is not local[n], spark://")


# Pinned and refused.


@pytest.mark.parametrize("pin", PINS, ids=lambda pin: pin.name)
def test_another_value_of_a_pinned_property_is_refused_in_one_line(pin: Any) -> None:
    master = KUBERNETES if pin.on is On.KUBERNETES else STANDALONE
    wanted = pin.value_for(worker(master))
    other = {"true": "false", "false": "true"}.get(wanted, "cluster" if wanted == "client" else "7")
    (fault,) = faults(worker(master, {pin.name: other}))
    assert fault == f"worker.spark.{pin.name}: must be {wanted}, not {other}: {pin.reason}"
    assert "\n" not in fault


@pytest.mark.parametrize("pin", PINS, ids=lambda pin: pin.name)
def test_a_pinned_property_is_always_sent(pin: Any) -> None:
    """A `spark-defaults.conf` would set it otherwise."""
    master = KUBERNETES if pin.on is On.KUBERNETES else STANDALONE
    wanted = pin.value_for(worker(master))
    assert properties(worker(master))[pin.name] == wanted
    assert properties(worker(master, {pin.name: f" {wanted.upper()}"}))[pin.name] == wanted


def test_a_local_worker_has_the_pins_of_any_master_only() -> None:
    sent = properties(worker())
    assert sent["spark.task.maxFailures"] == "1"
    assert sent["spark.python.worker.idleTimeoutSeconds"] == "0"
    others = {pin.name for pin in PINS if pin.on is not On.ANY}
    assert others.isdisjoint(sent)
    assert faults(worker("local[5]", {"spark.executor.cores": "3"})) == []


@pytest.mark.parametrize("name", REFUSED)
def test_some_properties_are_not_set(name: str) -> None:
    (fault,) = faults(worker(STANDALONE, {name: "x"}))
    assert fault == f"worker.spark.{name}: must not be set: {REFUSED[name]}"


@pytest.mark.parametrize(
    ("given", "refused"),
    [
        ("256m", True),
        ("262144k", True),
        ("449m", True),
        ("450m", False),
        ("1g", False),
        ("x", False),
    ],
)
def test_a_heap_in_which_spark_does_not_start_is_refused(given: str, refused: bool) -> None:
    """`UnifiedMemoryManager` demands 471859200 bytes."""
    found = faults(worker(spark={"spark.driver.memory": given}))
    text = (
        f"worker.spark.spark.driver.memory: {given} is less than the 450m that Spark demands: give 512m,"
        " or leave it out"
    )
    assert found == ([text] if refused else [])
    audit = driver_faults("audit.spark", {"spark.driver.memory": given})
    assert [fault.key for fault in audit] == ["audit.spark.spark.driver.memory"] * refused


def test_every_fault_is_reported_at_once() -> None:
    found = faults(worker(STANDALONE, {"spark.speculation": "true", "spark.cores.max": "9"}))
    assert [fault.partition(":")[0] for fault in found] == [
        "worker.spark.spark.speculation",
        "worker.spark.spark.cores.max",
    ]


# Slots, cores and memory.


def test_a_standalone_worker_takes_one_executor_of_one_core_for_each_slot() -> None:
    sent = properties(worker(STANDALONE, slots=3))
    assert sent["spark.cores.max"] == sent["spark.executor.instances"] == "3"
    assert sent["spark.executor.cores"] == sent["spark.task.cpus"] == "1"


def test_cores_as_many_as_slots_may_be_written_down() -> None:
    assert faults(worker(HERE, {"spark.cores.max": "2"}, slots=2)) == []


@pytest.mark.parametrize(
    ("buffer_mib", "handlers_mib", "expected"),
    [(64, (), 384), (512, (), 692), (64, (256,), 500), (64, (256, 100), 600)],
)
def test_an_executor_has_memory_for_its_copier(
    buffer_mib: int, handlers_mib: tuple[int, ...], expected: int
) -> None:
    handlers = [
        {"topics": f"t{n}", "handler": "a:b", "memory_mib": mib}
        for n, mib in enumerate(handlers_mib)
    ]
    routes = (RouteConfig.model_validate({"source": "a", "target": "b", "handlers": handlers}),)
    settings = worker(STANDALONE, buffer_bytes=buffer_mib << 20)
    assert overhead_mib(settings, routes) == expected
    sent = spark_properties(settings, routes)
    assert sent["spark.executor.memoryOverhead"] == f"{expected}m"


def test_an_executor_has_memory_for_the_sessions_of_its_queries() -> None:
    """Queries that differ in topics and rounds share one, with the heap of its JVM and some 300 MiB more."""
    same, larger = {"query": "SELECT * FROM records"}, {"memory_mib": 1_024}
    queries = [
        {"topics": "a", **same},
        {"topics": "b", **same, "max_rows": 10},
        {"topics": "c", **same, **larger},
    ]
    routes = tuple(
        RouteConfig.model_validate({"source": "a", "target": target, "sql": sql})
        for target, sql in (("b", queries), ("c", queries[:1]))
    )
    expected = 64 + 180 + (512 + 300) + (1_024 + 300) + (512 + 300)
    assert overhead_mib(worker(STANDALONE), routes) == expected


@pytest.mark.parametrize(
    ("given", "accepted"),
    [
        ("384m", True),
        ("1g", True),
        ("500", True),
        ("402653184b", True),
        ("2048b", False),
        ("1gb", True),
        ("383m", False),
        ("300000k", False),
        ("x", False),
    ],
)
def test_an_executor_has_no_less_memory_than_that(given: str, accepted: bool) -> None:
    settings = worker(KUBERNETES, {"spark.executor.memoryOverhead": given})
    if accepted:
        assert properties(settings)["spark.executor.memoryOverhead"] == given
        return
    (fault,) = faults(settings)
    assert fault.startswith(
        f"worker.spark.spark.executor.memoryOverhead: must be at least 384m, not {given}: "
    )


# Addresses and ports.


def test_the_driver_listens_on_one_address_and_advertises_another() -> None:
    sent = properties(worker(STANDALONE, bind="0.0.0.0", advertise="w1.example"))  # noqa: S104
    assert sent["spark.driver.bindAddress"] == "0.0.0.0"  # noqa: S104
    assert sent["spark.driver.host"] == "w1.example"


def test_the_address_is_that_of_bind_by_default() -> None:
    sent = properties(worker(STANDALONE, bind="10.0.0.6", advertise=""))
    assert sent["spark.driver.host"] == sent["spark.driver.bindAddress"] == "10.0.0.6"


def test_a_local_driver_is_on_the_loopback_address_whatever_the_pages_are_on() -> None:
    sent = properties(worker("local[5]", bind="0.0.0.0", advertise="w1"))  # noqa: S104
    assert sent["spark.driver.host"] == sent["spark.driver.bindAddress"] == "127.0.0.1"


@pytest.mark.parametrize(
    ("bind", "advertise", "fault"),
    [
        ("127.0.0.1", "w1", "worker.bind: 127.0.0.1 accepts no connection of another machine"),
        ("localhost", "w1", "worker.bind: localhost accepts no connection"),
        ("0.0.0.0", "", "worker.advertise: is required with worker.bind 0.0.0.0"),  # noqa: S104
        ("0.0.0.0", "0.0.0.0", "worker.advertise: is required"),  # noqa: S104
        ("0.0.0.0", "127.0.0.1", "worker.advertise: 127.0.0.1 is this machine"),  # noqa: S104
        ("10.0.0.6", "localhost", "worker.advertise: localhost is this machine"),
    ],
)
@pytest.mark.parametrize("master", [STANDALONE, KUBERNETES])
def test_an_address_that_executors_elsewhere_cannot_reach_is_refused(
    master: str, bind: str, advertise: str, fault: str
) -> None:
    (found,) = faults(worker(master, bind=bind, advertise=advertise))
    assert found.startswith(fault)
    assert master in found


def test_a_cluster_on_this_machine_may_use_the_loopback_address() -> None:
    sent = properties(worker(HERE, bind="127.0.0.1", advertise="", spark_secret_file=""))
    assert sent["spark.driver.host"] == "127.0.0.1"
    assert "spark.authenticate" not in sent


def test_a_fixed_port_that_is_taken_is_not_replaced_by_the_next() -> None:
    """A firewall would not let the next one through."""
    sent = properties(worker(STANDALONE, {"spark.driver.port": "7078"}))
    assert sent["spark.port.maxRetries"] == "0"
    assert "spark.port.maxRetries" not in properties(worker(STANDALONE))


def test_executors_on_one_machine_share_a_range_of_ports() -> None:
    ports = {"spark.driver.blockManager.port": "7079", "spark.blockManager.port": "7080"}
    assert "spark.port.maxRetries" not in properties(worker(STANDALONE, ports))


# Secrets.


@pytest.mark.parametrize("master", [STANDALONE, KUBERNETES])
def test_executors_elsewhere_need_a_secret(master: str) -> None:
    (fault,) = faults(worker(master, spark_secret_file=""))
    assert fault.startswith(f"worker.spark_secret_file: is required with {master}")


def test_kubernetes_reads_the_secret_from_its_file() -> None:
    sent = properties(worker(KUBERNETES, spark_secret_file="/var/secret/spark"))  # noqa: S106
    assert sent["spark.authenticate.secret.file"] == "/var/secret/spark"
    assert sent["spark.authenticate"] == sent["spark.network.crypto.enabled"] == "true"


def test_no_property_of_a_standalone_cluster_names_the_secret() -> None:
    sent = properties(worker(STANDALONE))
    assert not [name for name in sent if "secret" in name]


def test_a_cluster_on_this_machine_may_authenticate_too() -> None:
    assert properties(worker(HERE))["spark.authenticate"] == "true"


# Kubernetes.


def test_executors_on_kubernetes_need_an_image() -> None:
    (fault,) = faults(worker(KUBERNETES, {"spark.kubernetes.container.image": ""}))
    assert fault.startswith("worker.spark.spark.kubernetes.container.image: is required")
    own = {"spark.kubernetes.container.image": "", "spark.kubernetes.executor.container.image": "x"}
    assert faults(worker(KUBERNETES, own)) == []
