"""Copies of full topics, one after the other on the same brokers."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from ureplicator_bench import throughput
from ureplicator_bench.contenders import Contender
from ureplicator_bench.load import Filler, Profile
from ureplicator_bench.servers import Servers
from ureplicator_bench.throughput import Throughput
from ureplicator_testkit.records.topics import create_topic, delete_topic

WARM_UP_S = 15.0
"""Time of copying, for each contender."""
WARM_UP_ROUNDS = 6


@dataclass(frozen=True, slots=True)
class Copying:
    """`deadline_s`: of one copy; `progress`: is told in a line what is done."""

    servers: Servers
    deadline_s: float
    progress: Callable[[str], None]

    @contextmanager
    def filled(self, profile: Profile) -> Iterator[str]:
        """A full topic of the source, deleted in the end."""
        topic = "bench-" + re.sub(r"[^a-z0-9]+", "-", profile.name)
        source = self.servers.source.bootstrap
        self.progress(f"{profile.name}: filling {topic}")
        create_topic(source, topic, partitions=profile.partitions)
        Filler(source, topic, profile).add(profile.records)
        yield topic
        delete_topic(source, topic)

    def warm_up(
        self,
        contenders: Sequence[Contender],
        topic: str,
        profile: Profile,
        *,
        passing: int | None = None,
    ) -> None:
        """Each copies for a while, in as many rounds as that takes."""
        for contender in contenders:
            copied_s, rounds = 0.0, 0
            while copied_s < WARM_UP_S and rounds < WARM_UP_ROUNDS:
                copied = self.copy(contender, topic, profile, passing=passing, why="to warm up")
                copied_s += copied.seconds
                rounds += 1

    def first_copies(
        self, contenders: Sequence[Contender], profile: Profile, *, passing: int
    ) -> list[tuple[str, Throughput]]:
        """Each copies a topic that nobody has read before, once."""
        found = []
        for contender in contenders:
            with self.filled(profile) as topic:
                result = self.copy(contender, topic, profile, passing=passing, why="a fresh topic")
            found.append((contender.name, result))
        return found

    def copy(
        self,
        contender: Contender,
        topic: str,
        profile: Profile,
        *,
        passing: int | None = None,
        why: str = "measured",
    ) -> Throughput:
        """One copy of the whole topic to a target topic of its own. `passing`: records that are copied."""
        self.progress(f"{profile.name}: {contender.name} copies, {why}")
        target = self.servers.target.bootstrap
        create_topic(target, topic, partitions=profile.partitions)
        os.sync()  # otherwise the first contender pays for dirty pages of the fill
        found = throughput.measure(
            contender,
            self.servers,
            topic,
            profile,
            deadline_s=self.deadline_s,
            passing=passing or profile.records,
        )
        delete_topic(target, topic)
        return found
