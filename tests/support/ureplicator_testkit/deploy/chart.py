"""The chart rendered by Helm, as Kubernetes objects."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[4]
CHART = ROOT / "deploy/helm/ureplicator"
VALUES = sorted((CHART / "ci").glob("*-values.yaml"))
DEFAULT = CHART / "ci/default-values.yaml"
JARS = Path(os.environ.get("UREPLICATOR_JARS") or Path.home() / ".cache/ureplicator")
Manifest = Mapping[str, Any]


@functools.cache
def _run(command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    done = [command, *arguments]
    return subprocess.run(done, capture_output=True, text=True, check=False)  # noqa: S603


def tool(name: str) -> str:
    """Path of a command that `scripts/setup --tests` brings; the test is skipped without it."""
    installed = JARS / "bin" / name
    command = shutil.which(name) or (str(installed) if installed.exists() else None)
    if command is None:
        pytest.skip(f"no {name}: scripts/setup --tests brings it where it can")
    return command


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    return _run(tool("helm"), *arguments)


def text(values: Path, *more: str, release: str = "r") -> str:
    options = ("--namespace", "ns", "--kube-version", "1.31.0")
    done = helm("template", release, str(CHART), "-f", str(values), *options, *more)
    assert done.returncode == 0, done.stderr
    return done.stdout


def render(values: Path, *more: str, release: str = "r") -> list[Manifest]:
    documents = yaml.load_all(text(values, *more, release=release), yaml.CSafeLoader)
    return [document for document in documents if document]


def refusal(*more: str) -> str:
    done = helm("template", "r", str(CHART), "-f", str(DEFAULT), "--kube-version", "1.31.0", *more)
    assert done.returncode != 0, more
    return done.stderr


def of_kind(manifests: list[Manifest], *kinds: str) -> list[Manifest]:
    return [manifest for manifest in manifests if manifest["kind"] in kinds]


def pods(manifests: list[Manifest]) -> Iterator[tuple[Manifest, Manifest]]:
    """Workload and the spec of its pods."""
    for workload in of_kind(manifests, "Deployment", "StatefulSet"):
        yield workload, workload["spec"]["template"]["spec"]
    for workload in of_kind(manifests, "Pod"):
        yield workload, workload["spec"]
