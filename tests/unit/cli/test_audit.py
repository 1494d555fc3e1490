"""`ureplicator audit`: options that are wrong are one line, before Spark is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from ureplicator_common.model import RouteSettings
from ureplicator_testkit.control.command import run
from ureplicator_worker.auditor.recording import CopiedAs


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--resume"], "--resume needs --result"),
        (["--resume", "--result", "r", "--from", "5"], "leave --from out"),
        (["--rate", "fast"], "'fast' is not a rate"),
        (["--rate", "0"], "'0' is not a rate"),
        (["--from", "yesterday"], "neither an offset nor a time"),
        (["--from", "30", "--to", "20"], "--from: 30 is not before --to 20"),
        (["--from", "2026-01-31", "--to", "2026-01-30"], "is not before --to 2026-01-30"),
        (["--route", "b.a"], "there is no route b.a: the configuration has a.b"),
        (["--route", "x"], "there is no route x"),
        (["--set", "worker.slots=0"], "worker.slots"),
    ],
)
def test_wrong_options(config: Path, words: list[str], reason: str) -> None:
    result = run("audit", str(config), "--topic", "orders", *words)
    assert result.exit_code == 2
    assert reason in result.stderr.splitlines()[-1]
    assert result.stdout == ""


def test_an_empty_topic_is_refused_by_name(config: Path) -> None:
    result = run("audit", str(config), "--topic", "")
    assert result.exit_code == 2
    assert "--topic is empty" in result.stderr.splitlines()[-1]


def test_a_folder_without_a_result_is_not_resumed(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = CopiedAs(RouteSettings(), "orders")
    monkeypatch.setattr("ureplicator_worker.auditor.recording.copied_as", lambda *_: copied)
    folder = tmp_path / "none"
    result = run("audit", str(config), "--topic", "orders", "--resume", "--result", str(folder))
    assert result.exit_code == 2
    assert result.stderr == f"{folder} has no result.json to resume: begin without --resume\n"
    assert not folder.exists()


def test_the_route_is_needed_where_there_are_two(config: Path) -> None:
    config.write_text(config.read_text().replace("]\n", ", {source: b, target: a}]\n"))
    result = run("audit", str(config), "--topic", "orders")
    assert result.exit_code == 2
    assert result.stderr == "--route is needed: the configuration has a.b, b.a\n"
