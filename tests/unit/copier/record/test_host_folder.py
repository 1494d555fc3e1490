"""The folder in which a worker was started: no code of it runs in the process of a handler."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from ureplicator_worker.copier.record.process import spawn


def test_no_module_of_the_current_folder_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile = tmp_path / "json"
    hostile.mkdir()
    (hostile / "__init__.py").write_text("open('ran', 'w').close()\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    ours, theirs = socket.socketpair()
    with ours, theirs, spawn(theirs, "json.tool") as process:
        process.wait(30)
    assert not (tmp_path / "ran").exists()
