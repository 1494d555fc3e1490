"""`scripts/stack up` where servers run already."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from ureplicator_testkit.servers import stack

BROKER, ZOOKEEPER = 7, 8


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of a server of a stack that was started; nothing of it is run or ended here."""
    for name, value in {
        "LOCAL": tmp_path,
        "FOLDER": tmp_path / "stack",
        "STATE": tmp_path / "stack/state.json",
        "ENVIRONMENT": tmp_path / "stack.env",
        "CONFIG": tmp_path / "config.yaml",
    }.items():
        monkeypatch.setattr(stack, name, value)
    monkeypatch.setattr(stack, "kill_marked", lambda *_: ())
    monkeypatch.setattr(stack, "_start", lambda _: stack.ENVIRONMENT.write_text("started\n"))
    data = tmp_path / "stack/target/log"
    data.parent.mkdir(parents=True)
    data.write_text("records")
    servers = {"target-broker-1": BROKER, "zookeeper": ZOOKEEPER}
    members = [
        {"name": name, "pid": pid, "address": "", "log": ""} for name, pid in servers.items()
    ]
    stack.STATE.write_text(json.dumps({"wanted": {}, "members": members}))
    stack.ENVIRONMENT.write_text("found\n")
    return data


def test_servers_that_run_keep_their_data_when_another_has_ended(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stack, "_ours", lambda: [ZOOKEEPER])
    result = CliRunner().invoke(stack.main, ["up"])
    assert result.exit_code == 1
    assert "stack: target-broker-1 has ended" in result.output
    assert "scripts/stack down" in result.output
    assert data.exists()


def test_remains_of_a_stack_that_has_ended_are_removed(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stack, "_ours", list)
    result = CliRunner().invoke(stack.main, ["up"])
    assert (result.exit_code, result.output) == (0, "started\n")
    assert not data.exists()
