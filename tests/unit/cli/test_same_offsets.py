"""`ureplicator offsets same`: a line for each partition, and the exit code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from ureplicator_common.model import Delivery, RouteSettings
from ureplicator_testkit.control.command import run
from ureplicator_worker.audit.result import AuditResult, Finding, FindingKind, PartitionResult
from ureplicator_worker.auditor.command import Command, Done
from ureplicator_worker.auditor.recording import CopiedAs

SAME = PartitionResult(0, 100, 2_100, 2_100, end=2_100, compared=1_980)
SHIFTED = PartitionResult(1, 0, 90, 91, end=90, compared=90, shifted=40, missing=1)
FOUND = (
    Finding(1, FindingKind.SHIFTED, 50, 51),
    Finding(1, FindingKind.MISSING, 20, -1),
)


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[Command]:
    """What would be run."""
    copied = CopiedAs(RouteSettings(), "orders")
    monkeypatch.setattr("ureplicator_worker.auditor.recording.copied_as", lambda *_: copied)
    return []


@pytest.fixture
def said(config: Path, commands: list[Command], monkeypatch: pytest.MonkeyPatch) -> Any:
    """The command, with a result as if both logs had been read."""

    def command(parts: tuple[PartitionResult, ...], *findings: Finding, more: str = "") -> Result:
        result = AuditResult("a.b", "orders", "copy", parts, findings, Delivery.EXACTLY_ONCE)

        def execute(_: object, command: Command, **__: object) -> Done:
            commands.append(command)
            return Done(result)

        monkeypatch.setattr("ureplicator_worker.auditor.command.execute", execute)
        monkeypatch.setattr("ureplicator_cli.audit_run._record", _refuse)
        return run("offsets", "same", "orders", "--config", config, *more.split())

    return command


def _refuse(*_: object) -> None:
    raise AssertionError("a proof of offsets is no state of the topic")


def test_the_range_and_the_records_of_what_is_the_same(said: Any, commands: list[Command]) -> None:
    result = said((SAME,), more="--partition 0 --rate 5k")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.splitlines() == [
        "orders on a.b -> copy",
        "partition 0: same from 100 to 2100 (1,980 records)",
    ]
    (command,) = commands
    assert command.options.same_offsets
    assert (command.options.rate_bytes_per_s, command.wanted.numbers) == (5_000, (0,))


def test_the_first_difference_is_named(said: Any) -> None:
    result = said((SAME, SHIFTED), *FOUND)
    assert result.exit_code == 1
    assert result.stdout.splitlines()[2] == (
        "partition 1: different from 0 to 90 (50 records are the same): 20 is not at the target;"
        " 40 shifted, 1 missing"
    )


@pytest.mark.parametrize(
    ("finding", "text"),
    [
        (Finding(1, FindingKind.SHIFTED, 50, 51), "50 is at 51 of the target"),
        (Finding(1, FindingKind.FOREIGN, -1, 7), "7 of the target is not at the source"),
        (Finding(1, FindingKind.ALTERED, 8, 8, "key,value"), "8 has another key,value"),
        (
            Finding(1, FindingKind.ALTERED, 8, 9, "headers"),
            "8 has another headers, and is at 9 of the target",
        ),
        (Finding(1, FindingKind.REPEATED, 8, 10), "8 is again at 10 of the target"),
        (Finding(1, FindingKind.REORDERED, 8, 3), "8 is at 3 of the target"),
    ],
)
def test_what_differs(said: Any, finding: Finding, text: str) -> None:
    (line,) = said((SHIFTED,), finding).stdout.splitlines()[1:]
    assert line.endswith(f": {text}; 40 shifted, 1 missing")


def test_what_is_not_proved_is_no_proof(said: Any) -> None:
    lost = PartitionResult(0, 0, 0, end=90, uncompared="the target has no records")
    result = said((lost,))
    assert result.exit_code == 2
    assert result.stdout.splitlines()[1] == (
        "partition 0: not compared to 90; the target has no records"
    )
    assert result.stderr.startswith("orders: ")


def test_the_result_as_json(said: Any) -> None:
    result = said((SAME, SHIFTED), *FOUND, more="--json")
    found = json.loads(result.stdout)
    assert (found["state"], found["totals"]["shifted"]) == ("different", 40)
    assert found["findings"][0]["kind"] == "shifted"
    assert said((SAME,), more="--route x.y").exit_code == 2
