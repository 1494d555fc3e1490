"""Rows of the list: the document of `/overview` for people whose browser runs no scripts."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

MAX_ROWS = 500
"""A longer table is unreadable: choose a state."""
AGREE = "agree"


def listed(document: Mapping[str, Any], *, state: str) -> dict[str, Any]:
    """The rows that the page is drawn from. `state`: that of the partitions to show; "": all that do
    not agree."""
    states = document["states"]
    tiles = document["tiles"]
    found = [
        index
        for index, number in enumerate(tiles["state"])
        if (states[number] == state if state else states[number] != AGREE)
    ]
    counts = {name: tiles["state"].count(number) for number, name in enumerate(states)}
    return {
        "sentences": [summary["sentence"] for summary in document["summaries"]],
        "counts": counts,
        "state": state,
        "rows": [_row(document, index) for index in found[:MAX_ROWS]],
        "more": max(0, len(found) - MAX_ROWS),
    }


def _row(document: Mapping[str, Any], index: int) -> dict[str, str]:
    tiles = document["tiles"]
    topic = document["topics"][tiles["topic"][index]]
    worker = tiles["worker"][index]
    return {
        "topic": f"{topic['route']}/{topic['topic']}",
        "partition": str(tiles["partition"][index]),
        "state": document["states"][tiles["state"][index]],
        "worker": document["workers"][worker]["worker"] if worker >= 0 else "none",
        "actual": document["texts"][tiles["actual"][index]] or "no worker",
        "reason": document["texts"][tiles["reason"][index]],
        "since": _time(tiles["since"][index]),
    }


def _time(wall_ms: int) -> str:
    return (
        f"{datetime.fromtimestamp(wall_ms / 1_000, UTC):%Y-%m-%d %H:%M:%S} UTC" if wall_ms else ""
    )
