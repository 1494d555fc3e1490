"""A fleet whose topics move between two clusters with rights, and the writers that move with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import requests

from ureplicator_testkit.cutover.applications import Partition, Writer, expected
from ureplicator_testkit.cutover.clusters import APPLICATION, FLEET, BothEnds
from ureplicator_testkit.fleet.real_fleet import Fleet
from ureplicator_testkit.records.topics import create_topic, read_all
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.processes import deadline_factor, eventually

PARTITIONS = 4
STEP_S, COPIED_S = 90 * deadline_factor(), 120 * deadline_factor()
POLL_S = 0.02
MORE = 40
"""Records that each writer is to write after a move."""
THERE = {"source": "source", "target": "target", "delivery": "exactly_once", "offset_map": True}
BACK = {**THERE, "source": "target", "target": "source"}
OPENED = ("OPEN", "WATCHED", "DONE")


@contextmanager
def moving_fleet(
    ends: BothEnds,
    *,
    name: str,
    folder: Path,
    zookeeper: str,
    topics: Mapping[str, int],
    controllers: int = 1,
    workers: int = 1,
    controller: Mapping[str, Any] | None = None,
) -> Iterator[Fleet]:
    """A fleet that copies in both directions, the topics there. They are created at both ends."""
    for cluster in ends:
        for topic, partitions in topics.items():
            create_topic(cluster.bootstrap, topic, partitions=partitions)
    fleet = Fleet(
        name=name,
        folder=folder,
        zookeeper=zookeeper,
        source=ends.source.bootstrap,
        target=ends.target.bootstrap,
        routes=(THERE, BACK),
        security=ends.properties(FLEET),
        controller=controller,
        worker={"slots": 2, "commit_interval_s": 1},
    )
    with fleet.start(controllers=controllers, workers=workers):
        for topic in topics:
            fleet.whitelist(topic)
        for topic, partitions in topics.items():
            fleet.wait_online(topic, partitions)
        yield fleet


class Moves:
    """Writers of a fleet's topics, which move with its cutovers: half of the topics are written in
    transactions. Whatever the fleet does, each record is to be at both clusters, once and in order."""

    def __init__(self, fleet: Fleet, ends: BothEnds, topics: Mapping[str, int]) -> None:
        self._fleet, self._ends, self._topics = fleet, ends, topics
        self._clients = ends.properties(APPLICATION)
        names = list(topics)
        plain, whole = names[: len(names) // 2], names[len(names) // 2 :]
        self.writers = [
            Writer(self._clients["source"], {name: topics[name] for name in plain}),
            Writer(
                self._clients["source"],
                {name: topics[name] for name in whole},
                transactional_id=f"{fleet.name}-application",
            ),
        ]
        self.is_there = False
        """True when clients are at the target."""

    def start(self) -> None:
        for writer in self.writers:
            writer.start()
        self.write_on()

    def stop(self) -> None:
        for writer in self.writers:
            writer.stop()

    def request(self) -> None:
        """Request that clients move to where they are not."""
        if self.is_there:
            self._fleet.rest("POST", "/cutovers/move/back?confirm=true")
            return
        body = {"topics": [f"{self._fleet.name}-.*"], "fence": "acl"}
        way = "?src=source&dst=target"
        planned = self._fleet.rest("POST", f"/cutovers/move{way}", json=body)
        assert not planned["blocked"], planned["findings"]
        self._fleet.rest("POST", "/cutovers/move/start?confirm=true")

    def await_state(self, *states: str) -> Any:
        """The cutover in one of these states; a controller may be away meanwhile."""

        def reached() -> Any:
            try:
                response = self._fleet.call("GET", "/cutovers/move")
            except requests.RequestException:
                return None
            if not response.ok:
                return None
            shown = response.json()
            is_run = shown["run"] and shown["former"] is None
            return shown if is_run and shown["state"] in states else None

        return eventually(reached, STEP_S, f"one of {states}", poll_s=POLL_S)

    def follow(self) -> Any:
        """Move with the cutover, or stay if it is aborted; what REST shows of it at the end."""
        shown = self.await_state(*OPENED, "ABORTED")
        if shown["state"] != "ABORTED":
            self.is_there = not self.is_there
            for writer in self.writers:
                writer.go_to(self._clients["target" if self.is_there else "source"])
            shown = self.await_state("WATCHED", "DONE")
        self.write_on()
        return shown

    def write_on(self) -> None:
        def counts() -> list[int]:
            return [sum(writer.acknowledged.values()) for writer in self.writers]

        until = [count + MORE for count in counts()]
        eventually(
            lambda: all(now > then for now, then in zip(counts(), until, strict=True)),
            STEP_S,
            "all write on",
        )

    def judge(self) -> None:
        """Both clusters get each record, once and in order. The writers have stopped."""
        wanted = {
            key: values
            for writer in self.writers
            for key, values in expected(writer.acknowledged).items()
        }
        for cluster in self._ends:
            for topic in self._topics:
                right = {key: values for key, values in wanted.items() if key[0] == topic}
                has_all = partial(has_values, cluster, topic, right)
                eventually(has_all, COPIED_S, f"{cluster.name} has all of {topic}, once, in order")


def has_values(cluster: KafkaCluster, topic: str, wanted: Mapping[Partition, list[bytes]]) -> bool:
    found = read_all(cluster.bootstrap, topic)
    return {(topic, n): [each.value for each in log] for n, log in found.items()} == wanted
