"""Usage, help and imports of the command."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ureplicator_testkit.control.command import run


@pytest.mark.parametrize(
    "words",
    [
        ["check-config"],
        ["nonsense"],
        ["topics", "nonsense"],
        ["topics", "add"],
        ["topics", "expand", "orders"],
        ["topics", "expand", "orders", "many"],
        ["topics", "--nonsense"],
        ["instances", "--nonsense"],
        ["instances", "drain"],
    ],
)
def test_wrong_usage(words: list[str]) -> None:
    assert run(*words).exit_code == 2


@pytest.mark.parametrize(
    "words", [[], ["-h"], ["topics", "-h"], ["instances", "-h"], ["worker", "-h"], ["--version"]]
)
def test_help(words: list[str]) -> None:
    result = run(*words)
    assert result.exit_code in (0, 2)  # click exits with 2 for the bare command
    assert result.output


def test_no_role_is_imported_before_it_runs() -> None:
    script = (
        "import sys, ureplicator_cli.main;"
        "print([name for name in sys.modules if name.split('.')[0] in"
        " ('pyspark', 'flask', 'kazoo', 'confluent_kafka', 'ureplicator_controller',"
        " 'ureplicator_worker')])"
    )
    command = [sys.executable, "-c", script]
    process = subprocess.run(command, capture_output=True, text=True)  # noqa: S603
    assert process.stdout == "[]\n"
