"""One topic that is copied during a fault, and the checks at the end.

    start   a load begins, the topic is whitelisted, and copied up to the load
    (fault) injected by the test
    judge   heal, stop the load, and check every guarantee:

The load and a reader of the target write a history (`histories`) while the fault happens; at the end both
logs, from their beginning, and every commit that the target accepted are added. The judge of histories finds:

L, P, O     nothing missing, foreign, changed, out of order; each record is in the partition that it names
D           what is repeated begins at a position that a lost writer had committed (`histories.repeats`)
S, K        no commit by an older owner, none that goes back

Besides:

K           the last commits are the ends of the source
C           the external view is the ideal state, even over the workers
E           no epoch had two leaders
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol, Self

from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_common.kafka.client import ClusterClient
from ureplicator_common.kafka.positions import read_positions
from ureplicator_common.kafka.transactions.position_rows import all_readable
from ureplicator_common.model import Route
from ureplicator_testkit.fleet.real_fleet import FORTH, Fleet
from ureplicator_testkit.histories.checker import Promise
from ureplicator_testkit.histories.events import Commits
from ureplicator_testkit.histories.reader import Reader, judge_copy
from ureplicator_testkit.histories.recorder import History
from ureplicator_testkit.histories.repeats import NO_LOST_WRITER, Lost
from ureplicator_testkit.records.commits import CommitLog, CommittedOffset, last_offsets
from ureplicator_testkit.records.load import Load
from ureplicator_testkit.records.topics import create_topic, offsets, read_all
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.processes import NotInTimeError, eventually

RATE = 200
"""Records a second outside of transactions: test, brokers and judge take the processor for each."""
COMMITTED_S = 30
PARTITIONS = 6
POSITIONS_S = 2.0
AT_LEAST_ONCE = Promise()


class Site(Protocol):
    """Servers that a test breaks and heals."""

    def cluster(self, end: str) -> KafkaCluster: ...

    def heal(self) -> None: ...


class Flow:
    """Belongs to one test; `close` it, however the test ended. `prefix`: of the route's target topics;
    `promise`: what the route promises. `young`: records have the time at which they are sent; else any."""

    def __init__(
        self,
        site: Site,
        fleet: Fleet,
        topic: str,
        *,
        partitions: int = PARTITIONS,
        rate: int = RATE,
        route: Route = FORTH,
        prefix: str = "",
        promise: Promise = AT_LEAST_ONCE,
        young: bool = False,
    ) -> None:
        self.topic, self.partitions = topic, partitions
        self.copy = prefix + topic
        self._site, self._fleet, self._route = site, fleet, route
        self._source = site.cluster(route.source).bootstrap
        self._target = site.cluster(route.target).bootstrap
        self._promise = promise
        self._beside: tuple[Flow, ...] = ()
        self.history = History(fleet.folder / f"{topic}.history")
        self._load = Load(
            self._source,
            topic,
            partitions=partitions,
            records_per_s=rate,
            add=self.history.add,
            young=young,
        )
        self._commits = CommitLog(self._target, fleet.group(route), self.copy)
        self._client = ClusterClient(self._target)
        self.reader = Reader(
            self._target,
            topic,
            self.copy,
            partitions=partitions,
            add=self.history.add,
            isolation=promise.isolations[-1],
            positions=self._positions if promise.transactional else None,
        )

    def start(self, *beside: Flow) -> Self:
        """Wait until all is copied up to the load: from then on commits follow closely. The flows `beside`
        are judged with this one."""
        self._beside = beside
        flows: tuple[Flow, ...] = (self, *beside)
        for flow in flows:
            flow._begin()
        for flow in flows:
            self._fleet.wait_online(flow.topic, flow.partitions)
        self._fleet.wait_settled()
        for flow in flows:
            flow.reader.start()
            flow.wait_caught_up()
        return self

    def _begin(self) -> None:
        self._create()
        eventually(self._is_established, 20, f"{self.topic} accepts records")
        self._load.start()
        self._fleet.whitelist(self.topic, self._route)

    def _create(self) -> None:
        replicas = -1  # as the cluster has it by default
        create_topic(
            self._source, self.topic, partitions=self.partitions, replication_factor=replicas
        )

    def _is_established(self) -> bool:
        """A broker that has just created a partition may acknowledge a first batch and not keep it."""
        self._load.produce(1)
        return all(end > 0 for end in self._source_ends().values())

    def stop(self) -> None:
        """Stop the load."""
        self._load.stop()

    def delete(self) -> None:
        """End the copying."""
        for flow in (self, *self._beside):
            route = f"src={flow._route.source}&dst={flow._route.target}"
            self._fleet.rest("DELETE", f"/topics/{flow.topic}?{route}")

    def close(self) -> None:
        """Leave nothing behind, however the test ended."""
        self.reader.close()
        self._client.close()
        try:
            self.stop()
        finally:
            self.history.close()

    def produce(self, count: int) -> None:
        """Produce so many more records in each partition, also after the load was stopped."""
        self._load.produce(count)

    # --- while it flows ----------------------------------------------------------------------

    def owners(self) -> dict[int, str]:
        return self._fleet.owners(self.topic)

    def a_worker(self) -> str:
        """A worker that copies; the same each time, as long as nothing moves."""
        return min(self.owners().values())

    def wait_owned_by(self, workers: set[str], deadline_s: float) -> None:
        """Wait until every partition is ONLINE on one of these workers, of the flows beside, too."""

        def owned(flow: Flow) -> bool:
            owners = flow.owners()
            return len(owners) == flow.partitions and set(owners.values()) <= workers

        for flow in (self, *self._beside):
            what = f"all of {flow.topic} is ONLINE on {sorted(workers)}"
            eventually(lambda: owned(flow), deadline_s, what)  # noqa: B023

    def assert_copying(self, *partitions: int, deadline_s: float = 10) -> None:
        """Records keep arriving at the target, in each of these partitions (default: all, and those of the
        flows beside)."""
        flows = (self,) if partitions else (self, *self._beside)
        before = [flow._target_ends() for flow in flows]
        for flow, ends in zip(flows, before, strict=True):
            flow._assert_beyond(ends, partitions or tuple(ends), deadline_s)

    def _assert_beyond(
        self, before: Mapping[int, int], partitions: Sequence[int], deadline_s: float
    ) -> None:
        eventually(
            lambda: all(self._target_ends()[number] > before[number] for number in partitions),
            deadline_s,
            f"records keep arriving in {partitions} of {self.topic}",
        )

    def _target_ends(self) -> Mapping[int, int]:
        found = offsets(self._target, self.copy)
        return {number: end for number, (_, end) in found.items()}

    def wait_caught_up(self, deadline_s: float = 40) -> None:
        """Wait until a position is committed past everything that the source has now, of the flows beside,
        too."""
        for flow in (self, *self._beside):
            flow._wait_caught_up(deadline_s)

    def _wait_caught_up(self, deadline_s: float) -> None:
        ends, group = self._source_ends(), self._fleet.group(self._route)
        client = ClusterClient(self._target)
        wanted = {self.copy: sorted(ends)}

        def caught_up() -> bool:
            try:
                found = all_readable(read_positions(client, group, wanted))
            except ClusterUnavailable:  # perhaps a transaction with positions is just being ended
                return False
            return all(found[self.copy, number].offset >= end for number, end in ends.items())

        try:
            eventually(caught_up, deadline_s, f"{self.topic} is caught up")
        finally:
            client.close()

    def _positions(self) -> dict[int, int] | None:
        """Positions for the reader, in its thread."""
        wanted = {self.copy: range(self.partitions)}
        try:
            with self._client.within(POSITIONS_S):
                group = self._fleet.group(self._route)
                found = all_readable(read_positions(self._client, group, wanted))
        except ClusterUnavailable:
            return None
        return {number: position.offset for (_, number), position in found.items()}

    def _source_ends(self) -> dict[int, int]:
        found = offsets(self._source, self.topic, isolation="read_committed")
        return {number: end for number, (_, end) in found.items()}

    # --- the end -----------------------------------------------------------------------------

    def judge(self, repeats: Lost = NO_LOST_WRITER) -> None:
        """`repeats`: the writers that were lost, whose last records may be there twice."""
        self.heal()
        for flow in (self, *self._beside):
            flow._judge(repeats)
        self._fleet.assert_one_leader_per_epoch()

    def _judge(self, repeats: Lost) -> None:
        self._wait_transactions_ended()
        self.wait_caught_up()
        committed = self._wait_committed()
        self.reader.stop()
        self.history.add(Commits(committed))
        judge_copy(
            self.history,
            replace(self._promise, lost=repeats),
            topic=self.topic,
            source=read_all(self._source, self.topic),
            target=partial(read_all, self._target, self.copy),
        )

    def heal(self) -> None:
        self._site.heal()
        self._fleet.heal()
        for flow in (self, *self._beside):
            flow.stop()

    def _wait_transactions_ended(self) -> None:
        """A broker that was away may lack the markers of transactions that were committed long before."""

        def ended() -> bool:
            written = {
                number: end for number, (_, end) in offsets(self._source, self.topic).items()
            }
            return self._source_ends() == written

        eventually(ended, COMMITTED_S, f"all transactions of {self.topic} have ended")

    def _wait_committed(self) -> Sequence[CommittedOffset]:
        """All commits, once the copy has followed the last markers, too, which hold no records."""
        left: dict[int, tuple[int, int]] = {}

        def is_complete() -> bool:
            last, ends = last_offsets(self._commits.read()), self._source_ends()
            left.clear()
            left.update({n: (last.get(n, -1), ends[n]) for n in ends if last.get(n) != ends[n]})
            return not left

        with contextlib.suppress(NotInTimeError):
            eventually(is_complete, COMMITTED_S, "all is committed")
        assert not left, f"committed, and end of the source, by partition: {left}"
        return self._commits.read()
