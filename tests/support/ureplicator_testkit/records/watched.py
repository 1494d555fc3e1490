"""A topic of three partitions, each led by another broker, whose copy is watched during a fault.

    trickle -----> topic at the source --> its copy at the target <-- watch: positions and reasons
    trickle -----> a topic beside the copy, on the same brokers

The copy may stand still as long as one of the two plain producers did, or while one of them does, and
`ALLOWED_S` more.
"""

from __future__ import annotations

import re
import time
from functools import partial
from typing import Any, Self

import requests

from ureplicator_testkit.fleet.real_fleet import FORTH, Fleet
from ureplicator_testkit.histories.checker import Promise
from ureplicator_testkit.histories.reader import Reader, judge_copy
from ureplicator_testkit.histories.recorder import History
from ureplicator_testkit.records.stalls import CopyWatch, Trickle, longest_alone_s
from ureplicator_testkit.records.topics import read_all
from ureplicator_testkit.servers.processes import deadline_factor, eventually
from ureplicator_testkit.servers.replicas import ROTATED, create_placed
from ureplicator_testkit.servers.replicated import ReplicatedServers

PARTITIONS = len(ROTATED)
ALLOWED_S = 2.0
MOVES_S = 60.0
CONNECTION = re.compile(r"^ERROR: (source|target): \S+:\d+:? ")
"""A reason that names the address of a broker. Commits that wait for a coordinator are named as such."""


class WatchedTopic:
    """Belongs to one test; `stop` it, however the test ended."""

    def __init__(
        self, site: ReplicatedServers, fleet: Fleet, topic: str, *, worker: str, prefix: str
    ) -> None:
        self.topic, self.copy, beside = topic, prefix + topic, f"{topic}-beside"
        self._site, self._fleet, self._worker = site, fleet, worker
        create_placed(site.source, topic)
        for name in (self.copy, beside):
            create_placed(site.target, name)
        self.history = History(fleet.folder / f"{topic}.history")
        add = self.history.add
        self.at_source = Trickle(site.source.bootstrap, topic, partitions=PARTITIONS, add=add)
        self.at_target = Trickle(site.target.bootstrap, beside, partitions=PARTITIONS)
        self.reader = Reader(
            site.target.bootstrap, topic, self.copy, partitions=PARTITIONS, add=add
        )
        self.watch = CopyWatch(self._status, partitions=PARTITIONS)

    def start(self) -> Self:
        self._fleet.whitelist(self.topic)
        self.at_source.start()
        self.at_target.start()
        self.reader.start()
        self._fleet.wait_online(self.topic, PARTITIONS)
        self.watch.start()
        self.wait_moving()
        return self

    def begin(self) -> None:
        """Pauses and reasons count from here on."""
        for stalls in (self.at_source.stalls, self.at_target.stalls):
            stalls.begin(time.monotonic())
        self.watch.begin()

    def stop(self) -> None:
        self.watch.stop()
        self.reader.close()
        try:
            self.at_source.stop()
            self.at_target.stop()
        finally:
            self.history.close()

    @property
    def partitions(self) -> int:
        return PARTITIONS

    def stands_still(self, partition: int) -> bool:
        """True in ERROR, with a reason."""
        row = self._status().get(partition, {})
        return row.get("state") == "ERROR" and bool(row["reason"])

    def wait_moving(self) -> None:
        """Wait until every partition of all three moves again."""
        began_s = time.monotonic()

        def moving() -> bool:
            stalls = (self.at_source.stalls, self.at_target.stalls, self.watch.stalls)
            return all(side.all_moved_since(began_s) for side in stalls)

        eventually(moving, MOVES_S, f"{self.topic} and its copy move")

    def assert_no_slower_than_producers(self) -> None:
        """Prints the longest pause of each partition."""
        now_s = time.monotonic()
        source, target, copy = (
            stalls.longest_s(now_s)
            for stalls in (self.at_source.stalls, self.at_target.stalls, self.watch.stalls)
        )
        for number, pause_s in copy.items():
            print(
                f"partition {number} stood still for {pause_s:.1f} s "
                f"(producers: {source[number]:.1f} s at the source, {target[number]:.1f} s at the "
                f"target), {self._longest_alone_s(number, now_s):.1f} s of a pause while neither did; "
                f"reasons: {sorted(self.watch.reasons[number])}"
            )
        more_s = {
            number: min(
                pause_s - max(source[number], target[number]), self._longest_alone_s(number, now_s)
            )
            for number, pause_s in copy.items()
        }
        slow = {n: each_s for n, each_s in more_s.items() if each_s > ALLOWED_S * deadline_factor()}
        assert not slow, f"stood still more than {ALLOWED_S} s longer than plain producers: {slow}"

    def _longest_alone_s(self, number: int, now_s: float) -> float:
        """Longest time in a pause of the copy without a pause of a producer."""
        producers = (self.at_source.stalls, self.at_target.stalls)
        others = [pause for producer in producers for pause in producer.pauses(number, now_s)]
        return longest_alone_s(self.watch.stalls.pauses(number, now_s), others)

    def assert_well_elsewhere(self, broker: int) -> None:
        """A partition that another broker leads has no connection at fault, however long it waits."""
        for number, brokers in enumerate(ROTATED):
            wrong = [reason for reason in self.watch.reasons[number] if CONNECTION.search(reason)]
            assert brokers[0] == broker or not wrong, f"partition {number}: {wrong}"

    def judge(self) -> None:
        """Stop, and have the history judged: nothing is repeated, since no writer was lost."""
        self.at_source.stop()
        self.at_target.stop()
        source = read_all(self._site.source.bootstrap, self.topic)
        ends = {number: records[-1].offset + 1 for number, records in source.items()}

        def copied() -> bool:
            rows = self._status()
            return all(rows.get(n, {}).get("committed", -1) >= end for n, end in ends.items())

        eventually(copied, MOVES_S, f"{self.topic} is copied")
        self.reader.stop()
        target = partial(read_all, self._site.target.bootstrap, self.copy)
        judge_copy(self.history, Promise(), topic=self.topic, source=source, target=target)

    def _status(self) -> dict[int, dict[str, Any]]:
        try:
            rows = self._fleet.status(self._worker)["partitions"]
        except requests.RequestException:
            return {}
        own = f"{FORTH}/{self.topic}/"
        return {
            int(name.removeprefix(own)): row for name, row in rows.items() if name.startswith(own)
        }
