"""Producers and consumers move to the other cluster and back, while they work.

The fence is a program, as for a gateway: it tells the gate before the producer to hold its writes, or to pass
them on to the cluster that opens.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from ureplicator_demo.fleet import Fleet
from ureplicator_testkit.cutover.applications import Group, Partition, Writer, expected
from ureplicator_testkit.records.topics import create_topic, read_all
from ureplicator_testkit.servers.processes import eventually

TOPICS = {"orders": 4, "clicks": 4}
GROUP = "billing"
WRITTEN = 800
"""Records between two moves, at least."""
DEADLINE_S = 90.0
POLL_S = 0.02
NAME = "move"
_PROGRAM = """\
#!/bin/sh
# Called as PROGRAM fence|open|abort NAME: done when the gate says so.
echo "$1" > "{folder}/gate"
while [ "$(cat "{folder}/gate")" != "$1 done" ]; do sleep 0.01; done
"""


def configured(stack_config: Path, folder: Path) -> Path:
    """The configuration of the servers with both directions, and the program of the fence."""
    config = yaml.safe_load(stack_config.read_text())
    there = {**config["routes"][0], "offset_map": True}
    config["routes"] = [there, {**there, "source": there["target"], "target": there["source"]}]
    programs = folder / "fences"
    programs.mkdir()
    program = programs / "gate"
    program.write_text(_PROGRAM.format(folder=folder))
    program.chmod(0o755)
    config["controller"]["fence_commands"] = str(programs)
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


class Gate:
    """What stands before the producer. It follows the program of the fence."""

    def __init__(self, folder: Path, writer: Writer) -> None:
        self._file = folder / "gate"
        self._writer = writer
        self.next: Mapping[str, str] = {}
        """The cluster that is opened next."""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gate", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(POLL_S / 2):
            verb = self._file.read_text().strip() if self._file.exists() else ""
            if verb in ("", "fence done", "open done", "abort done"):
                continue
            if verb == "fence":
                self._writer.pause()
            else:
                if verb == "open":
                    self._writer.go_to(self.next)
                self._writer.resume()
            self._file.write_text(f"{verb} done\n")


def there_and_back(fleet: Fleet, servers: Mapping[str, str], folder: Path, console: Console) -> str:
    """What was found, in words. Raises AssertionError if a record is lost or repeated, or something does not
    end in time."""
    source = {"bootstrap.servers": servers["SOURCE_BOOTSTRAP"]}
    target = {"bootstrap.servers": servers["TARGET_BOOTSTRAP"]}
    for topic, partitions in TOPICS.items():
        create_topic(source["bootstrap.servers"], topic, partitions=partitions)
        fleet.rest("POST", "/topics?src=source&dst=target", {"topic": topic})
    writer, group = Writer(source, TOPICS), Group(source, GROUP, [*TOPICS])
    gate = Gate(folder, writer)
    for part in (writer, group, gate):
        part.start()
    console.print("  a producer writes, the group billing reads")
    try:
        _await_written(writer)
        eventually(partial(_is_online, fleet), DEADLINE_S, "all partitions are copied")
        _plan(fleet, console)
        gate.next = target
        fleet.rest("POST", f"/cutovers/{NAME}/start?confirm=true")
        there_s = _moved(fleet, group, target, console)
        _await_written(writer)
        gate.next = source
        fleet.rest("POST", f"/cutovers/{NAME}/back?confirm=true")
        back_s = _moved(fleet, group, source, console)
        _await_written(writer)
    finally:
        gate.stop()
        writer.stop()
    wanted = expected(writer.acknowledged)
    eventually(lambda: _is_read(group, wanted), DEADLINE_S, "the group has read everything")
    group.leave()
    group.join()
    for end in (source, target):
        has_all = partial(_has_all, end["bootstrap.servers"], wanted)
        eventually(has_all, DEADLINE_S, "both clusters have everything")
    count = sum(writer.acknowledged.values())
    blocked = f"writes were blocked for {there_s:.2f} s there and {back_s:.2f} s back"
    return f"{blocked}; {count:,} records: 0 lost, 0 repeated"


def _plan(fleet: Fleet, console: Console) -> None:
    body = {
        "topics": [*TOPICS],
        "groups": [GROUP],
        "fence": "command",
        "fenceCommand": "gate",
        "waitForGroups": True,
    }
    planned = fleet.rest("POST", f"/cutovers/{NAME}?src=source&dst=target", body)
    found = [finding for finding in planned["findings"] if finding["level"] != "ok"]
    for finding in found:
        console.print(f"  {finding['level']}: {finding['subject']}: {finding['text']}")
    assert not planned["blocked"], "the plan is blocked"
    console.print(f"  planned: {len(planned['findings'])} checks, {len(found)} to look at")


def _moved(fleet: Fleet, group: Group, to: Mapping[str, str], console: Console) -> float:
    """Follow a cutover, and move the group with it; the seconds for which writes were blocked."""
    began = time.monotonic()
    seen: list[str] = []

    def reached(*states: str) -> Any:
        shown = fleet.rest("GET", f"/cutovers/{NAME}")
        assert shown["state"] != "ABORTED", shown["reason"]
        is_run = bool(shown["run"]) and shown["former"] is None
        for step in shown["steps"] if is_run else ():
            if step["state"] not in seen:
                seen.append(step["state"])
                console.print(f"  {step['state']:<9} {step['seconds']:6.2f} s")
        return shown if is_run and shown["state"] in states else None

    fenced = partial(reached, "FENCED", "DRAINED", "VERIFIED", "GROUPS", "OPEN", "WATCHED", "DONE")
    eventually(fenced, DEADLINE_S, "the fence holds", poll_s=POLL_S)
    group.leave()
    group.join()
    opened = partial(reached, "OPEN", "WATCHED", "DONE")
    eventually(opened, DEADLINE_S, "the other cluster is open", poll_s=POLL_S)
    group.go_to(to)
    shown = eventually(
        partial(reached, "WATCHED", "DONE"), DEADLINE_S, "it is copied back", poll_s=POLL_S
    )
    console.print(f"  the copy back runs after {time.monotonic() - began:.1f} s", style="dim")
    return float(shown["blockedSeconds"])


def _await_written(writer: Writer) -> None:
    until = sum(writer.acknowledged.values()) + WRITTEN
    eventually(lambda: sum(writer.acknowledged.values()) > until, DEADLINE_S, "the producer writes")


def _is_online(fleet: Fleet) -> bool:
    validation = fleet.rest("GET", "/validation")
    return bool(validation["numOnlineTopicPartitions"] == sum(TOPICS.values()))


def _is_read(group: Group, wanted: Mapping[Partition, list[bytes]]) -> bool:
    """True when the group has read all, once, in order. Raises AssertionError if it cannot any more."""
    for key, values in group.read.items():
        assert values == wanted[key][: len(values)], f"{key}: lost, repeated, or out of order"
    return group.read == wanted


def _has_all(bootstrap: str, wanted: Mapping[Partition, list[bytes]]) -> bool:
    for topic in TOPICS:
        for number, log in read_all(bootstrap, topic).items():
            values = [record.value for record in log]
            right = wanted[topic, number]
            assert values == right[: len(values)], f"{topic}/{number}: lost, repeated, or unordered"
            if len(values) < len(right):
                return False
    return True
