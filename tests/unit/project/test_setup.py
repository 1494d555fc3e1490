"""`scripts/setup` makes `.venv` with the interpreter that PYTHON names, and keeps one that fits."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PYTHON = """#!/bin/sh
case "$*" in
  *ensurepip*) ;;
  *sys.executable*) echo "$0" ;;
  *version_info*) echo {version} ;;
  *pip*) ;;
  *venv*) mkdir -p .venv/bin && cp "$0" .venv/bin/python ;;
  --version) echo Python {version} ;;
esac
"""
"""In place of an interpreter: makes environments of itself, into which anything can be installed."""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout"
    (folder / "scripts").mkdir(parents=True)
    for name in ("scripts/setup", "requirements.lock", "pyproject.toml"):
        shutil.copy(ROOT / name, folder / name)
    kafka = tmp_path / "jars/kafka_2.13-4.1.0"
    kafka.mkdir(parents=True)
    (kafka / "kafka_2.13-4.1.0.jar").touch()
    for name, version in {"python3.11": "3.11", "other": "3.13"}.items():
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(PYTHON.format(version=version))
        path.chmod(0o755)
    return folder


def set_up(checkout: Path, **settings: str) -> str:
    beside = checkout.parent
    path = f"{beside / 'bin'}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "UREPLICATOR_JARS": str(beside / "jars"), **settings}
    if "PYTHON" not in settings:
        environment.pop("PYTHON", None)
    done = subprocess.run(  # noqa: S603
        [str(checkout / "scripts/setup")],
        capture_output=True,
        text=True,
        check=False,
        cwd=checkout,
        env=environment,
    )
    assert done.returncode == 0, done
    return done.stdout


def test_an_environment_is_made_once(checkout: Path) -> None:
    shown = set_up(checkout)
    assert "making .venv" in shown
    assert "ready: Python 3.11," in shown
    assert "making .venv" not in set_up(checkout)


def test_another_interpreter_makes_it_anew_and_is_kept(checkout: Path) -> None:
    set_up(checkout)
    shown = set_up(checkout, PYTHON="other")
    assert "making .venv" in shown
    assert "ready: Python 3.13," in shown
    for settings in ({}, {"PYTHON": "other"}):
        shown = set_up(checkout, **settings)
        assert "installing" not in shown
        assert "ready: Python 3.13," in shown
