"""One topic that is copied during a fault, and the checks at the end.

    start   a load begins, the topic is whitelisted, and copied up to the load
    (fault) injected by the test
    judge   heal, stop the load, and check every guarantee:

L, P, O, D  both logs from their beginning: nothing missing, foreign, out of order; few duplicates
S, K        every commit that the target accepted (`commits`): none by an older owner, none that
            goes back, and the last ones are the ends of the source
C           the external view is the ideal state, even over the workers
E           no epoch had two leaders
"""

from collections.abc import Mapping
from typing import Self

from ureplicator_common.kafka.client import ClusterClient
from ureplicator_common.kafka.positions import read_positions
from ureplicator_testkit.fleet.real_fleet import COMMIT_INTERVAL_S, Fleet
from ureplicator_testkit.records.commits import commits, last_offsets, violations
from ureplicator_testkit.records.load import Load
from ureplicator_testkit.records.topics import (
    NewRecord,
    compare_logs,
    create_topic,
    offsets,
    produce,
)
from ureplicator_testkit.servers.network import BreakableServers
from ureplicator_testkit.servers.processes import eventually

RATE = 1_500
PARTITIONS = 6
SLACK_S = 2.0
"""Delay of a commit on a busy machine, beyond the interval."""


class Flow:
    """Belongs to one test; `stop` it, however the test ended."""

    def __init__(
        self,
        site: BreakableServers,
        fleet: Fleet,
        topic: str,
        *,
        partitions: int = PARTITIONS,
        rate: int = RATE,
    ) -> None:
        self.topic, self.partitions = topic, partitions
        self._site, self._fleet, self._rate = site, fleet, rate
        self._load = Load(site.source.bootstrap, topic, partitions=partitions, records_per_s=rate)
        self._stopped = False

    def start(self) -> Self:
        """Wait until all is copied up to the load: from then on commits follow closely."""
        create_topic(self._site.source.bootstrap, self.topic, partitions=self.partitions)
        eventually(self._is_established, 20, f"{self.topic} accepts records")
        self._load.start()
        self._fleet.whitelist(self.topic)
        self._fleet.wait_online(self.topic, self.partitions)
        self._fleet.wait_settled()
        self.wait_caught_up()
        return self

    def _is_established(self) -> bool:
        """A broker that has just created a partition may acknowledge a first batch and not keep it."""
        new = [NewRecord(b"first", partition=number) for number in range(self.partitions)]
        produce(self._site.source.bootstrap, self.topic, new)
        return all(end > 0 for end in self._source_ends().values())

    def stop(self) -> None:
        """Stop the load."""
        self._load.stop()

    # --- while it flows ----------------------------------------------------------------------

    def owners(self) -> dict[int, str]:
        return self._fleet.owners(self.topic)

    def a_worker(self) -> str:
        """A worker that copies; the same each time, as long as nothing moves."""
        return min(self.owners().values())

    def wait_owned_by(self, workers: set[str], deadline_s: float) -> None:
        """Wait until every partition is ONLINE on one of these workers."""

        def owned() -> bool:
            owners = self.owners()
            return len(owners) == self.partitions and set(owners.values()) <= workers

        eventually(owned, deadline_s, f"all of {self.topic} is ONLINE on {sorted(workers)}")

    def assert_copying(self, *partitions: int, deadline_s: float = 10) -> None:
        """Records keep arriving at the target, in each of these partitions (default: all)."""
        before = self._target_ends()
        chosen = partitions or tuple(before)
        eventually(
            lambda: all(self._target_ends()[number] > before[number] for number in chosen),
            deadline_s,
            f"records keep arriving in {chosen}",
        )

    def _target_ends(self) -> Mapping[int, int]:
        found = offsets(self._site.target.bootstrap, self.topic)
        return {number: end for number, (_, end) in found.items()}

    def wait_caught_up(self, deadline_s: float = 40) -> None:
        """Wait until a position is committed past everything that the source has now."""
        ends = self._source_ends()

        client = ClusterClient(self._site.target.bootstrap)
        wanted = {self.topic: sorted(ends)}

        def caught_up() -> bool:
            found = read_positions(client, self._fleet.group, wanted)
            return all(found[self.topic, number].offset >= end for number, end in ends.items())

        try:
            eventually(caught_up, deadline_s, f"{self.topic} is caught up")
        finally:
            client.close()

    def _source_ends(self) -> dict[int, int]:
        source = self._site.source.bootstrap
        found = offsets(source, self.topic, isolation="read_committed")
        return {number: end for number, (_, end) in found.items()}

    def since_a_commit(self, times: float = 1) -> int:
        """Maximum number of records between a commit and the next."""
        return int(times * self._rate * (COMMIT_INTERVAL_S + SLACK_S))

    # --- the end -----------------------------------------------------------------------------

    def judge(self, *, max_duplicates: int = 0) -> None:
        self.heal()
        self.wait_caught_up()
        ends = self._source_ends()
        acknowledged = self._load.acknowledged
        assert 0 < acknowledged <= sum(ends.values()), (acknowledged, ends)
        self._judge_commits(ends)
        source, target = self._site.source.bootstrap, self._site.target.bootstrap
        compare_logs(source, target, self.topic).assert_faultless(max_duplicates=max_duplicates)
        self._fleet.assert_one_leader_per_epoch()

    def heal(self) -> None:
        self._site.heal()
        self._fleet.heal()
        self.stop()

    def _judge_commits(self, ends: Mapping[int, int]) -> None:
        found = commits(self._site.target.bootstrap, self._fleet.group, self.topic)
        wrong = list(violations(found))
        assert not wrong, wrong[:5]
        assert last_offsets(found) == ends
