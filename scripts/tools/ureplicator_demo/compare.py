"""Comparison of both sides by the product's own audit, which shares no code with the copiers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from ureplicator_worker.audit.result import AuditResult

DEADLINE_S = 180.0


class NotCompared(AssertionError):
    """The audit came to no result; the text is its reason."""


def audited(config: Path, topic: str, *, fleet: str) -> AuditResult:
    """Key, value, headers, timestamp and order of every record. Raises NotCompared."""
    command = Path(sys.executable).with_name("ureplicator")
    line = [str(command), "audit", str(config), "--topic", topic, "--json"]
    line += ["--set", f"fleet={fleet}"]
    try:
        done = subprocess.run(  # noqa: S603
            line, capture_output=True, text=True, timeout=DEADLINE_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise NotCompared(f"the audit took longer than {DEADLINE_S:.0f} s") from error
    if not done.stdout:
        raise NotCompared(f"the audit failed: {done.stderr.strip()}")
    return AuditResult.from_json(json.loads(done.stdout))
