"""`ureplicator completion`, in a real bash."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ureplicator_testkit.control.command import run

DEADLINE_S = 30.0
BASH = shutil.which("bash") or ""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An environment in which `ureplicator` is this code."""
    command = tmp_path / "ureplicator"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ureplicator_cli.main "$@"\n')
    command.chmod(0o755)
    (tmp_path / "script").write_text(run("completion", "bash").output)
    path = f"{tmp_path}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": os.pathsep.join(sys.path), "TERM": "dumb"}


def test_bash_completes_at_a_tab(tmp_path: Path, environment: dict[str, str]) -> None:
    master, slave = pty.openpty()
    shell = subprocess.Popen(  # noqa: S603
        [BASH, "--norc", "--noprofile", "-i"],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=environment,
        start_new_session=True,
    )
    os.close(slave)
    try:
        os.write(master, f". '{tmp_path}/script'\n".encode())
        os.write(master, b"ureplicator executor-ar\t--help\n")
        shown = _read_until(master, "FILE is a zip file")
    finally:
        shell.kill()
        shell.wait()
        os.close(master)
    assert "executor-archive --help" in shown


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("ureplicator stat", "status"),
        ("ureplicator topics exp", "expand"),
        ("ureplicator instances dr", "drain"),
    ],
)
def test_words_that_fit(
    tmp_path: Path, environment: dict[str, str], words: str, expected: str
) -> None:
    script = (
        f". '{tmp_path}/script'; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1));"
        ' _ureplicator_completion ureplicator; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    shell = [BASH, "--norc", "-c", script]
    done = subprocess.run(shell, env=environment, capture_output=True, text=True)  # noqa: S603
    assert done.stdout.split() == [expected], done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_script_of_each_shell(shell: str) -> None:
    result = run("completion", shell)
    assert result.exit_code == 0
    assert "_UREPLICATOR_COMPLETE" in result.output


def test_unknown_shell() -> None:
    assert run("completion", "tcsh").exit_code == 2


def _read_until(master: int, expected: str) -> str:
    """Text of the terminal until a part appears in it, or the deadline ends."""
    shown, deadline_s = "", time.monotonic() + DEADLINE_S
    while expected not in shown and time.monotonic() < deadline_s:
        if select.select([master], [], [], 0.1)[0]:
            shown += os.read(master, 65_536).decode(errors="replace")
    return shown
