"""Auditors of a fleet of real processes."""

from __future__ import annotations

from pathlib import Path

from ureplicator_testkit.fleet.real_fleet import Fleet
from ureplicator_testkit.servers.processes import Process, eventually, spawn_ureplicator

LIVE_S = 120.0


def start_auditor(fleet: Fleet, id: str, folder: Path, *settings: str) -> Process:
    """Returns when the auditor is live. Log and reports are in the folder."""
    process = spawn_ureplicator(
        *("auditor", fleet.config_of(id), "--id", id),
        *(
            part
            for setting in (f"audit.reports={folder}/reports", *settings)
            for part in ("--set", setting)
        ),
        log=folder / f"{id}.log",
        name=id,
    )

    def live() -> bool:
        process.assert_running()
        return id in fleet.rest("GET", "/audits")["auditors"]

    try:
        eventually(live, LIVE_S, f"auditor {id} is live")
    except BaseException:
        process.kill_tree()
        raise
    return process
