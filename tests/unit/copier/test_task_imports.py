"""Imports of a copier process: each slot has a process of its own, which imports them at its start."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("library", ["pydantic", "kazoo", "flask", "pyspark"])
def test_a_copier_does_not_import(library: str) -> None:
    script = f"import ureplicator_worker.copier.task, sys; assert {library!r} not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)  # noqa: S603
