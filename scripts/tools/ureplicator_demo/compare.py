"""Comparison of both sides by the product's own audit, which shares no code with the copiers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from rich.console import Console

from ureplicator_demo.waiting import await_none_missing
from ureplicator_worker.audit.result import AuditResult

DEADLINE_S = 600.0


class NotCompared(AssertionError):
    """The audit came to no result; the text is its reason."""


def audited(config: Path, topic: str, *, fleet: str, folder: Path, console: Console) -> AuditResult:
    """Key, value, headers, timestamp and order of every record. Raises NotCompared and NotInTimeError."""
    command = Path(sys.executable).with_name("ureplicator")
    line = [str(command), "audit", str(config), "--topic", topic, "--json"]
    line += ["--set", f"fleet={fleet}"]
    found, log = folder / "audit.json", folder / "audit.log"
    with found.open("wb") as output, log.open("wb") as errors:
        audit = subprocess.Popen(line, stdout=output, stderr=errors)  # noqa: S603
    missing = f"the audit of {topic} to end"
    try:
        await_none_missing(
            lambda: missing if audit.poll() is None else "", DEADLINE_S, console=console
        )
    finally:
        audit.kill()
        audit.wait()
    text = found.read_text()
    if not text:
        raise NotCompared(f"the audit failed: {log.read_text().strip()}")
    return AuditResult.from_json(json.loads(text))
