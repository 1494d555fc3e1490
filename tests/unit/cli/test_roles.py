"""`ureplicator check-config`, and the options of the roles."""

from __future__ import annotations

from pathlib import Path

import pytest

from ureplicator_testkit.control.command import run


def test_a_valid_configuration(config: Path) -> None:
    result = run("check-config", str(config))
    assert result.exit_code == 0
    assert "valid (fleet local, routes a.b)" in result.stdout


def test_an_invalid_configuration_reports_every_fault(config: Path) -> None:
    result = run("check-config", str(config), "--set", "worker.slots=0", "--set", "x.y=1")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert [line.split(": ")[1] for line in result.stderr.splitlines()] == ["worker.slots", "x"]


@pytest.mark.parametrize("role", ["check-config", "controller", "worker"])
def test_a_missing_configuration_is_one_line(tmp_path: Path, role: str) -> None:
    result = run(role, str(tmp_path / "no.yaml"))
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("name", ["", "a/b", "..", "@leader", "x" * 101, "ü"])
@pytest.mark.parametrize("role", ["controller", "worker"])
def test_an_id_that_is_no_name_of_a_node(config: Path, role: str, name: str) -> None:
    result = run(role, str(config), "--id", name)
    assert result.exit_code == 2
    assert "--id" in result.stderr
