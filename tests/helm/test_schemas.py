"""Every object of the chart is as the strict schemas of Kubernetes have it, which allow no unknown field."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
from kubernetes_validate import utils

from ureplicator_testkit.deploy.chart import CHART, DEFAULT, VALUES, Manifest, render
from ureplicator_testkit.deploy.custom_kinds import SCHEMAS

VERSIONS = ("1.27", "1.31", "1.37")
"""The oldest that the chart installs on, one between, and the newest whose schemas are at hand."""


@pytest.fixture(autouse=True, scope="module")
def each_schema_is_read_once() -> Iterator[None]:
    """The library reads that of all definitions, a megabyte, for each object."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(utils, "schema_contents", functools.cache(utils.schema_contents))
        yield


def fault(manifest: Manifest, version: str) -> str | None:
    """Fault of an object, in one line."""
    custom = SCHEMAS.get((manifest["apiVersion"], manifest["kind"]))
    try:
        if custom is not None:
            jsonschema.validate(manifest, custom)
        else:
            kubernetes_validate.validate(dict(manifest), version, strict=True)
    except (jsonschema.ValidationError, kubernetes_validate.ValidationError) as error:
        path = "/".join(map(str, error.absolute_path))
        return f"{manifest['kind']} {manifest['metadata']['name']}: {path}: {error.message}"
    return None


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("values", VALUES, ids=lambda path: path.stem)
def test_every_object_is_as_its_schema_says(values: Path, version: str) -> None:
    manifests = render(values, "--kube-version", f"{version}.0")
    assert manifests
    assert [found for manifest in manifests if (found := fault(manifest, version))] == []


def test_the_oldest_version_is_that_of_the_chart() -> None:
    assert f'kubeVersion: ">={VERSIONS[0]}.0-0"' in (CHART / "Chart.yaml").read_text()


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        ("Deployment", ("spec", "replica"), 2),
        ("Deployment", ("spec", "replicas"), "two"),
        ("StatefulSet", ("spec", "template", "spec", "securityContexts"), {}),
        ("ServiceMonitor", ("spec", "endpoints", 0, "tokenFile"), "/a"),
        ("ServiceMonitor", ("spec", "endpoints", 0, "interval"), "30"),
        ("PrometheusRule", ("spec", "groups", 0, "rules", 0, "expression"), "1"),
        ("ScaledObject", ("spec", "minReplicas"), 1),
    ],
)
def test_a_wrong_field_is_found(kind: str, path: tuple[Any, ...], value: Any) -> None:
    values = {
        "ScaledObject": "keda",
        "ServiceMonitor": "monitoring",
        "PrometheusRule": "monitoring",
    }
    file = CHART / "ci" / f"{values[kind]}-values.yaml" if kind in values else DEFAULT
    (manifest, *_) = (rendered for rendered in render(file) if rendered["kind"] == kind)
    changed = copy.deepcopy(dict(manifest))
    inner: Any = changed
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    assert fault(manifest, "1.31") is None
    assert str(path[-1]) in (fault(changed, "1.31") or "")
