"""The chart renders with every values file, refuses wrong values, and keeps what operators rely on."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from ureplicator_cli.commands import cli
from ureplicator_common.config.settings import load_settings
from ureplicator_testkit.deploy.chart import (
    CHART,
    DEFAULT,
    VALUES,
    Manifest,
    helm,
    of_kind,
    pods,
    refusal,
    render,
)

every_values_file = pytest.mark.parametrize("values", VALUES, ids=lambda path: path.stem)
ALL_ON = tuple(
    f"--set={key}.enabled=true" for key in ("auditor", "networkPolicy", "serviceMonitor", "keda")
)
"""Features of which each adds objects of its own."""


@every_values_file
def test_lint_is_strict(values: Path) -> None:
    done = helm("lint", "--strict", str(CHART), "-f", str(values))
    assert done.returncode == 0, done.stdout


# --- Values


def test_defaults_lack_what_only_the_operator_knows() -> None:
    done = helm("template", "r", str(CHART), "--kube-version", "1.31.0")
    assert "fleet" in done.stderr
    assert "routes" in done.stderr


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("controller.replicas", "0"),
        ("controller.replica", "2"),
        ("config.controller.port", "9001"),
        ("config.worker.slots", "2"),
        ("config.unknown", "1"),
        ("config.controller.rebalance_delay_s", "5"),
        ("workerGroups.default.slots", "0"),
        ("image.worker.digest", "latest"),
        ("image.pullPolicy", "Sometimes"),
        ("spark.master", "yarn"),
        ("service.port", "70000"),
        ("keda.scaleDownSeconds", "60"),
        ("serviceMonitor.interval", "often"),
    ],
)
def test_a_wrong_value_is_refused_with_its_key(key: str, value: str) -> None:
    keda = (
        ("--set=keda.enabled=true", "--set=keda.prometheusAddress=http://p")
        if "keda" in key
        else ()
    )
    error = refusal(f"--set={key}={value}", *keda)
    parent, _, last = key.rpartition(".")
    assert last in error or parent in error


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        (("--set=access.existingSecret=",), "access.existingSecret"),
        (("--set=spark.master=spark://m:7077",), "spark.existingSecret"),
        (("--set=keda.enabled=true",), "keda.prometheusAddress"),
        (("--set=keda.enabled=true,hpa.enabled=true",), "hpa.enabled"),
        (("--set=hpa.enabled=true,hpa.minReplicas=11",), "hpa.minReplicas"),
        (("--set=config.pages.tls.client_ca_file=/ca",), "config.pages.tls.client_ca_file"),
        (("--set=config.controller.tls.client_ca_file=/ca",), "controller.tls.client_ca_file"),
    ],
)
def test_values_that_contradict_each_other_are_refused(
    arguments: tuple[str, ...], key: str
) -> None:
    assert key in refusal(*arguments)


@pytest.mark.parametrize(
    ("value", "key"),
    [
        (r"config.clusters.west.sasl\.password=p", "config.clusters.west.sasl.password"),
        (r"config.clusters.west.ssl\.key\.pem=p", "config.clusters.west.ssl.key.pem"),
        (
            r"config.clusters.east.sasl\.oauthbearer\.client\.secret=p",
            "config.clusters.east.sasl.oauthbearer.client.secret",
        ),
        (
            r"config.worker.spark.spark\.hadoop\.fs\.s3a\.secret\.key=p",
            "config.worker.spark.spark.hadoop.fs.s3a.secret.key",
        ),
        (
            r"config.audit.spark.spark\.ssl\.keyPassword=p",
            "config.audit.spark.spark.ssl.keyPassword",
        ),
    ],
)
def test_a_secret_is_no_part_of_the_config_map(value: str, key: str) -> None:
    error = refusal(f"--set={value}")
    assert f"{key}: a secret must not stand in a ConfigMap: mount it by secretMounts" in error


@pytest.mark.parametrize(
    "value",
    [
        r"config.clusters.west.sasl\.password\.file=/etc/ureplicator/secrets/west/password",
        r"config.clusters.west.ssl\.key\.location=/etc/ureplicator/secrets/west/key.pem",
        r"config.clusters.west.sasl\.oauthbearer\.token\.endpoint\.url=https://i/token",
        r"config.clusters.west.sasl\.password=",
    ],
)
def test_the_place_of_a_secret_is_no_secret(value: str) -> None:
    assert render(DEFAULT, f"--set={value}")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ("config.routes[0].source=north", 'routes[0].source: unknown cluster "north"; known are: '),
        ("config.routes[0].target=north", 'routes[0].target: unknown cluster "north"'),
        ("config.routes[0].target=west", "routes[0].target: is the same cluster as the source"),
        (
            "config.routes[1].source=west,config.routes[1].target=east",
            "routes[1]: duplicate route west.east",
        ),
        ("config.clusters.North.bootstrap\\.servers=n:9092", "North"),
        ("config.fleet=a/b", "fleet"),
    ],
)
def test_what_no_process_would_start_with_is_refused(arguments: str, reason: str) -> None:
    assert reason in refusal(f"--set={arguments}")


def test_the_user_of_the_pods_may_be_the_cluster_s() -> None:
    """OpenShift gives each namespace a range of ids, which the image does not know."""
    (_, before), *_ = pods(render(DEFAULT))
    assert before["securityContext"]["runAsUser"] == 10001
    ids = ",".join(
        f"podSecurityContext.{name}=null" for name in ("runAsUser", "runAsGroup", "fsGroup")
    )
    found = [spec["securityContext"] for _, spec in pods(render(DEFAULT, f"--set={ids}"))]
    kept = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert found == [kept] * len(found)


def test_containers_may_be_restricted_otherwise_or_by_the_cluster() -> None:
    changes = "containerSecurityContext.runAsUser=7,containerSecurityContext.capabilities=null"
    found = list(pods(render(CHART / "ci/auditor-values.yaml", f"--set={changes}")))
    contexts = [
        container["securityContext"] for _, spec in found for container in spec["containers"]
    ]
    own = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "runAsUser": 7}
    assert contexts == [own] * len(found)


PAGES_TLS = ("--set=config.pages.tls.certificate_file=/c,config.pages.tls.key_file=/k",)
REST_TLS = (
    "--set=config.controller.tls.certificate_file=/c,config.controller.tls.key_file=/k,auditor.enabled=true",
)


@pytest.mark.parametrize(
    ("values", "arguments", "rest", "pages"),
    [
        ("rest-tls", (), "HTTPS", "HTTPS"),
        ("monitoring", (), "HTTP", "HTTP"),
        ("monitoring", PAGES_TLS, "HTTP", "HTTPS"),
        ("monitoring", REST_TLS, "HTTPS", "HTTP"),
    ],
)
def test_probes_and_prometheus_speak_tls_where_the_process_does(
    values: str, arguments: tuple[str, ...], rest: str, pages: str
) -> None:
    manifests = render(CHART / f"ci/{values}-values.yaml", *arguments)
    expected = {"Deployment": rest, "StatefulSet": pages}
    for kind, scheme in expected.items():
        for workload in of_kind(manifests, kind):
            (container,) = workload["spec"]["template"]["spec"]["containers"]
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                assert container[probe]["httpGet"].get("scheme", "HTTP") == scheme
    (monitor,) = of_kind(manifests, "ServiceMonitor")
    found = {
        endpoint["port"]: endpoint.get("scheme", "http")
        for endpoint in monitor["spec"]["endpoints"]
    }
    assert found == {"http": rest.lower(), "metrics": pages.lower(), "pages": pages.lower()}
    ports = {
        service["metadata"]["name"].removeprefix("r-ureplicator"): {
            port["name"] for port in service["spec"]["ports"]
        }
        for service in of_kind(manifests, "Service")
    }
    assert ports.pop("") == {"http", "metrics"}
    assert all(names == {"pages"} for names in ports.values())


@pytest.mark.parametrize("values", ["auditor", "worker-groups"])
def test_workers_and_auditors_get_the_token_of_pages_and_no_other(values: str) -> None:
    manifests = render(CHART / f"ci/{values}-values.yaml")
    for workload in of_kind(manifests, "StatefulSet"):
        spec = workload["spec"]["template"]["spec"]
        (access,) = (volume for volume in spec["volumes"] if volume["name"] == "access")
        assert access["secret"]["items"] == [{"key": "token", "path": "token"}]
        for container in spec["containers"]:
            assert "/etc/ureplicator/access" in [m["mountPath"] for m in container["volumeMounts"]]


def test_every_value_is_in_the_schema_and_used() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    templates = "".join(path.read_text() for path in (CHART / "templates").rglob("*.*"))
    for path in _leaves(values):
        assert _in_schema(schema, path), path
        assert re.search(rf"\b{path[0]}\b", templates), path
        if path[0] not in (
            "config",
            "workerGroups",
            "image",
            "podSecurityContext",
            "containerSecurityContext",
        ):
            assert re.search(rf"\.{path[-1]}\b", templates), path


def _leaves(tree: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in tree.items():
        if isinstance(value, dict) and value and key != "labels":
            yield from _leaves(value, (*above, key))
        else:
            yield (*above, key)


def _in_schema(schema: Mapping[str, Any], path: tuple[str, ...]) -> bool:
    for key in path:
        more = schema.get("additionalProperties", True)
        default = more if isinstance(more, dict) else {} if more else None
        found = schema.get("properties", {}).get(key, default)
        if found is None:
            return False
        schema = found
    return True


# --- Workloads


@every_values_file
def test_pods_are_restricted_and_can_write_where_spark_needs_it(values: Path) -> None:
    for workload, spec in pods(render(values)):
        assert spec["securityContext"]["runAsNonRoot"], workload["metadata"]["name"]
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert spec["enableServiceLinks"] is False
        for container in spec["containers"]:
            context = container["securityContext"]
            assert context["readOnlyRootFilesystem"]
            assert context["allowPrivilegeEscalation"] is False
            assert context["capabilities"] == {"drop": ["ALL"]}
        if workload["kind"] == "StatefulSet":
            container = spec["containers"][0]
            assert "/tmp" in [mount["mountPath"] for mount in container["volumeMounts"]]  # noqa: S108
            assert {"name": "SPARK_LOCAL_DIRS", "value": "/tmp"} in container["env"]  # noqa: S108


@every_values_file
def test_only_drivers_of_spark_on_kubernetes_have_a_token(values: Path) -> None:
    on_kubernetes = "spark-kubernetes" in values.name
    for workload, spec in pods(render(values)):
        driver = on_kubernetes and "-worker-" in workload["metadata"]["name"]
        assert spec["automountServiceAccountToken"] is driver


def test_selectors_are_stable() -> None:
    """Kubernetes refuses to change them: an upgrade would fail."""
    found = {
        workload["metadata"]["name"]: workload["spec"]["selector"]["matchLabels"]
        for workload in of_kind(render(DEFAULT), "Deployment", "StatefulSet")
    }
    common = {"app.kubernetes.io/name": "ureplicator", "app.kubernetes.io/instance": "r"}
    worker = {"app.kubernetes.io/component": "worker", "ureplicator/group": "default"}
    assert found == {
        "r-ureplicator-controller": common | {"app.kubernetes.io/component": "controller"},
        "r-ureplicator-worker-default": common | worker,
    }


@every_values_file
def test_selectors_match_exactly_their_own_pods(values: Path) -> None:
    manifests = render(values)
    labels = {
        manifest["metadata"]["name"]: manifest["spec"]["template"]["metadata"]["labels"].items()
        for manifest in of_kind(manifests, "Deployment", "StatefulSet")
    }
    for manifest in of_kind(manifests, "Deployment", "StatefulSet", "PodDisruptionBudget"):
        wanted = manifest["spec"]["selector"]["matchLabels"].items()
        assert [name for name, has in labels.items() if wanted <= has] == [
            manifest["metadata"]["name"]
        ]
    for manifest in of_kind(manifests, "Service"):
        wanted = manifest["spec"]["selector"].items()
        assert any(wanted <= has for has in labels.values()), manifest["metadata"]["name"]


def test_a_rolling_update_stays_above_the_disruption_budget() -> None:
    manifests = render(DEFAULT)
    budgets = {
        budget["metadata"]["name"]: budget["spec"]["maxUnavailable"]
        for budget in of_kind(manifests, "PodDisruptionBudget")
    }
    [controller] = of_kind(manifests, "Deployment")
    rolling = controller["spec"]["strategy"]["rollingUpdate"]
    assert rolling["maxUnavailable"] < budgets["r-ureplicator-controller"]
    [worker] = of_kind(manifests, "StatefulSet")
    assert worker["spec"]["updateStrategy"] == {"type": "RollingUpdate"}  # one pod at a time
    assert budgets["r-ureplicator-worker-default"] == 1


def test_the_grace_period_is_longer_than_the_drain() -> None:
    [worker] = of_kind(render(DEFAULT, "--set=config.worker.drain_timeout_s=90"), "StatefulSet")
    assert worker["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] > 90


def stop_of(*options: str, values: Path = DEFAULT) -> tuple[str, int]:
    """Command of the hook before a worker's stop ("": no hook), and its grace period."""
    [worker] = of_kind(render(values, *options), "StatefulSet")
    spec = worker["spec"]["template"]["spec"]
    lifecycle = spec["containers"][0].get("lifecycle")
    command = lifecycle["preStop"]["exec"]["command"] if lifecycle else ["sh", "-c", ""]
    assert command[:2] == ["sh", "-c"]
    return command[2], spec["terminationGracePeriodSeconds"]


def test_workers_stay_unless_asked_to_leave() -> None:
    assert stop_of() == ("", 60)
    assert stop_of("--set=config.worker.on_stop=leave") == ("", 120)


@pytest.mark.parametrize("leave_from", [0, 2])
def test_the_hook_has_the_pods_leave_that_scaling_takes_away(leave_from: int) -> None:
    hook, grace_s = stop_of(
        f"--set=workerGroups.default.leaveFrom={leave_from}",
        "--set=config.worker.leave_timeout_s=90",
    )
    assert grace_s == 90 + 30 + 30
    for number in range(4):
        told = hook.replace("kill -USR1 1", "echo leave")
        done = subprocess.run(  # noqa: S603
            ["/bin/sh", "-c", told],
            env={"POD_NAME": f"r-worker-default-{number}"},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout == ("leave\n" if number >= leave_from else "")


@pytest.mark.parametrize("name", ["keda", "hpa"])
def test_autoscaled_pods_above_the_minimum_leave(name: str) -> None:
    values = CHART / f"ci/{name}-values.yaml"
    hook, _ = stop_of(f"--set={name}.minReplicas=3", values=values)
    assert "-ge 3 ]" in hook
    hook, _ = stop_of("--set=workerGroups.default.leaveFrom=7", values=values)
    assert "-ge 7 ]" in hook


def test_autoscaled_groups_set_no_replicas_and_are_the_target() -> None:
    for name, kind in (("keda", "ScaledObject"), ("hpa", "HorizontalPodAutoscaler")):
        manifests = render(CHART / f"ci/{name}-values.yaml")
        [worker] = of_kind(manifests, "StatefulSet")
        [scaler] = of_kind(manifests, kind)
        assert "replicas" not in worker["spec"]
        assert scaler["spec"]["scaleTargetRef"]["name"] == worker["metadata"]["name"]


def test_workers_are_scaled_by_the_lag_of_their_own_fleet() -> None:
    """Two fleets may share a namespace."""
    manifests = render(CHART / "ci/keda-values.yaml", "--set=config.fleet=orders")
    [scaler] = of_kind(manifests, "ScaledObject")
    [trigger] = scaler["spec"]["triggers"]
    matchers = '{namespace="ns",fleet="orders"}'
    assert trigger["metadata"]["query"] == f"max(ureplicator_lag_seconds{matchers})"


def test_two_releases_in_a_namespace_do_not_collide() -> None:
    more = (*ALL_ON, "--set=keda.prometheusAddress=http://p")
    names = [
        {
            (manifest["kind"], manifest["metadata"]["name"])
            for manifest in render(DEFAULT, *more, release=release)
        }
        for release in ("one", "two")
    ]
    assert not names[0] & names[1]


def test_a_changed_setting_rolls_the_pods() -> None:
    first, second = (
        _checksum(render(DEFAULT, f"--set=config.worker.commit_interval_s={seconds}"))
        for seconds in (1, 2)
    )
    assert first != second


def _checksum(manifests: list[Manifest]) -> object:
    [worker] = of_kind(manifests, "StatefulSet")
    return worker["spec"]["template"]["metadata"]["annotations"]["checksum/config"]


# --- What the pods run


@every_values_file
def test_the_processes_take_configuration_variables_and_command(
    values: Path, tmp_path: Path
) -> None:
    manifests = render(values)
    [config] = [
        manifest["data"]["config.yaml"]
        for manifest in of_kind(manifests, "ConfigMap")
        if "config.yaml" in manifest.get("data", {})
    ]
    file = tmp_path / "config.yaml"
    file.write_text(config)
    for manifest in of_kind(manifests, "Deployment", "StatefulSet"):
        [container] = manifest["spec"]["template"]["spec"]["containers"]
        variables = {name["name"]: name.get("value", "10.0.0.1") for name in container["env"]}
        settings = load_settings(file, environ=variables)
        _ports_are_those(container, settings.model_dump())
        _command_parses(container["command"], file)


def _ports_are_those(container: Manifest, settings: Mapping[str, Any]) -> None:
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    role = str(container["name"])
    section = {"auditor": "audit"}.get(role, role)
    assert ports["http"] == settings[section]["port"]
    if container["name"] == "controller":
        assert ports["metrics"] == settings["controller"]["metrics_port"]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["port"] in ports


def _command_parses(command: list[str], config: Path) -> None:
    assert command[0] == "ureplicator"
    role = cli.get_command(click.Context(cli), command[1])
    assert role is not None
    arguments = [
        {"/etc/ureplicator/config.yaml": str(config), "$(POD_NAME)": "r-0"}.get(word, word)
        for word in command[2:]
    ]
    assert role.make_context(command[1], arguments).params["id"] == "r-0"


@every_values_file
def test_what_pods_mount_and_sign_in_as_exists(values: Path) -> None:
    manifests = render(values)
    accounts = {account["metadata"]["name"] for account in of_kind(manifests, "ServiceAccount")}
    for workload, spec in pods(manifests):
        volumes = {volume["name"] for volume in spec.get("volumes", ())}
        for container in spec["containers"]:
            assert {mount["name"] for mount in container.get("volumeMounts", ())} <= volumes
        if workload["kind"] != "Pod":
            assert spec["serviceAccountName"] in accounts
