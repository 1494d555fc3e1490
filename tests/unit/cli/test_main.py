"""Usage, help and imports of the command."""

from __future__ import annotations

import signal
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
        "import sys, ureplicator_cli.commands;"
        "print([name for name in sys.modules if name.split('.')[0] in"
        " ('pyspark', 'flask', 'kazoo', 'confluent_kafka', 'ureplicator_controller',"
        " 'ureplicator_worker')])"
    )
    command = [sys.executable, "-c", script]
    process = subprocess.run(command, capture_output=True, text=True)  # noqa: S603
    assert process.stdout == "[]\n"


SIGNALLED = """
import os, sys
from ureplicator_cli import main

class Signalled:
    @staticmethod
    def find_spec(name, *_):
        if name == "ureplicator_cli.commands":
            os.kill(os.getpid(), int(sys.argv.pop()))

sys.meta_path.insert(0, Signalled)
main.main()
"""
"""Gets a signal when it begins to import the commands."""


@pytest.mark.parametrize("role", ["controller", "worker", "auditor"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_role_that_is_ended_while_it_is_imported_did_not_fail(
    role: str, number: signal.Signals
) -> None:
    command = [sys.executable, "-c", SIGNALLED, role, "config.yaml", str(number.value)]
    process = subprocess.run(command, capture_output=True, text=True)  # noqa: S603
    assert (process.returncode, process.stdout, process.stderr) == (0, "", "")


def test_another_command_ends_by_the_signal() -> None:
    command = [sys.executable, "-c", SIGNALLED, "topics", str(signal.SIGTERM.value)]
    process = subprocess.run(command, capture_output=True, text=True)  # noqa: S603
    assert process.returncode == -signal.SIGTERM
