"""Images and compose file name what exists, run as the user of the chart, and start valid commands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
import yaml

from ureplicator_cli.commands import cli
from ureplicator_common.config.settings import load_settings

DEPLOY = Path(__file__).parents[3] / "deploy"
ROOT = DEPLOY.parent
COMPOSE = DEPLOY / "compose/compose.yaml"
ROLES = ("controller", "worker")
every_role = pytest.mark.parametrize("role", ROLES)


def dockerfile(role: str) -> str:
    return (DEPLOY / f"docker/{role}.Dockerfile").read_text()


def role_lock(*arguments: str) -> str:
    command = [sys.executable, str(DEPLOY / "docker/role_lock.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout  # noqa: S603


@every_role
def test_what_is_copied_exists(role: str) -> None:
    copies = re.findall(r"^COPY (?!--from)(.*) \S+$", dockerfile(role), re.MULTILINE)
    paths = [path for words in copies for path in words.split()]
    assert len(paths) == 9
    assert [path for path in paths if not (ROOT / path).exists()] == []


PINNED = re.compile(r"[\w./]+:\d+\.\d+\.\d+[\w.-]*@sha256:[0-9a-f]{64}")
"""Tag with a patch version, and digest."""


@every_role
def test_base_images_are_pinned_by_digest(role: str) -> None:
    text = dockerfile(role)
    [image] = re.findall(r"^ARG PYTHON_IMAGE=(\S+)$", text, re.MULTILINE)
    assert PINNED.fullmatch(image)
    bases = re.findall(r"^FROM (\S+)", text, re.MULTILINE)
    assert bases == ["${PYTHON_IMAGE}"] * 2
    assert text.index("ARG PYTHON_IMAGE") < text.index("FROM")


def test_both_roles_have_one_base() -> None:
    images = {re.search(r"PYTHON_IMAGE=(\S+)", dockerfile(role))[1] for role in ROLES}  # type: ignore[index]
    assert len(images) == 1


def test_servers_of_the_compose_file_are_pinned_by_digest() -> None:
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    images = {service["image"] for service in services.values() if "build" not in service}
    assert len(images) == 2
    assert all(PINNED.fullmatch(image) for image in images)


@every_role
def test_the_user_is_that_of_the_chart(role: str) -> None:
    values = yaml.safe_load((DEPLOY / "helm/ureplicator/values.yaml").read_text())
    user = values["podSecurityContext"]["runAsUser"]
    assert f"\nUSER {user}:{user}\n" in dockerfile(role)
    assert f"--uid {user} " in dockerfile(role)


@every_role
def test_any_user_has_a_home_that_may_be_written(role: str) -> None:
    """A user id that the image does not know has "/" as its home, which only root may write."""
    final = dockerfile(role).rpartition("FROM ")[2]
    assert re.search(r"^ENV .*\bHOME=/tmp$", final, re.MULTILINE)
    assert not re.search(r"chown|chmod|--user ", final), "nothing belongs to one user"


def test_spark_can_start_executors_from_the_workers_image() -> None:
    """Spark calls the entry point of an image with the one argument `executor`."""
    assert '\nENTRYPOINT ["ureplicator"]\n' in dockerfile("worker")
    command = cli.get_command(click.Context(cli), "executor")
    assert command is not None
    command.make_context("executor", [])


def test_only_the_worker_requires_spark() -> None:
    assert "pyspark" not in role_lock("wanted", "pyproject.toml", "controller")
    assert "pyspark" in role_lock("wanted", "pyproject.toml", "worker")


def test_a_part_of_the_lock_keeps_its_hashes(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    report.write_text('{"install": [{"metadata": {"name": "PyYAML"}}]}')
    part = role_lock("part", "requirements.lock", str(report))
    assert part.startswith("pyyaml==")
    assert "--hash=sha256:" in part
    assert part.count("==") == 1


def test_every_version_of_the_lock_is_a_constraint() -> None:
    lines = role_lock("versions", "requirements.lock").splitlines()
    locked = re.findall(r"^\S+==", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    assert len(lines) == len(locked)
    assert not any("--hash" in line or "\\" in line for line in lines)


def test_the_compose_file_starts_valid_commands() -> None:
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    config = COMPOSE.parent / "config.yaml"
    started = [service for service in services.values() if "command" in service]
    assert [service["command"][0] for service in started] == ["controller"] * 2 + ["worker"] * 2
    for service in started:
        role, file, *options = service["command"]
        assert service["volumes"] == [f"./{config.name}:{file}:ro"]
        assert load_settings(config, environ=service.get("environment", {})).fleet
        command = cli.get_command(click.Context(cli), role)
        assert command is not None
        command.make_context(role, [str(config), *options])
        assert (
            COMPOSE.parent / service["build"]["context"] / service["build"]["dockerfile"]
        ).exists()
        assert set(service["depends_on"]) <= set(services)
