"""One route in a copier: holder, delivery and lane wired together, and one turn of their work.

    driver <--> Holder --- begin, finish, drop ---> Lane <--> source and target brokers
                  |  ^                                |
                  |  +------- LaneEvent, Progress ----+
                  v
              Commits <--> Ownership thread <--> position store

Everything here runs in the copier's loop; nothing blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ureplicator_common.model import Partition, Route
from ureplicator_worker.copier.commits import Commits
from ureplicator_worker.copier.gaps import Gaps
from ureplicator_worker.copier.holder import Holder
from ureplicator_worker.copier.lane import Lane
from ureplicator_worker.copier.lifecycle import IN_LANE
from ureplicator_worker.copier.loop.mailbox import Mailbox
from ureplicator_worker.copier.messages import Begun, Committed, OwnershipEvent
from ureplicator_worker.copier.ownership.thread import Ownership
from ureplicator_worker.copier.reporting import every
from ureplicator_worker.copier.source_offsets import SourceOffsetPublisher
from ureplicator_worker.lifeline.measures import Segment, TransactionCounts
from ureplicator_worker.lifeline.messages import (
    Message,
    PartitionReport,
    ProofResponse,
    PublishedSettings,
)


class RouteCopier:
    """`events`: what the ownership thread posts; `send` delivers a message to the driver."""

    def __init__(
        self,
        route: Route,
        *,
        lane: Lane,
        ownership: Ownership,
        events: Mailbox[OwnershipEvent],
        publisher: SourceOffsetPublisher,
        commit_interval_s: float,
        transaction_interval_s: float,
        send: Callable[[Message], None],
    ) -> None:
        self.lane = lane
        self._ownership = ownership
        self._events = events
        self._publisher = publisher
        commits = Commits(
            route,
            lane=lane,
            ownership=ownership,
            commit_interval_s=commit_interval_s,
            transaction_interval_s=transaction_interval_s,
        )
        self.holder = Holder(
            route,
            lane=lane,
            commits=commits,
            ownership=ownership,
            gaps=Gaps(lane=lane, ownership=ownership, send=send),
            send=send,
        )

    @property
    def idle(self) -> bool:
        """No partition is held any more."""
        return not self.holder.owned

    @property
    def transactions(self) -> TransactionCounts:
        return self.holder.commits.counts

    @property
    def copying(self) -> Iterator[Partition]:
        """Partitions that the lane has."""
        return (part for part, owned in self.holder.owned.items() if owned.state in IN_LANE)

    def segments(self, partition: Partition) -> Sequence[Segment]:
        """See `Lane.segments`; none of a partition that the lane does not have."""
        owned = self.holder.owned.get(partition)
        if owned is None or owned.state not in IN_LANE:
            return ()
        return self.lane.segments(partition)

    def remove_all(self) -> None:
        for partition in list(self.holder.owned):
            self.holder.remove(partition)

    def change_settings(self, changed: PublishedSettings) -> None:
        """Change the settings of partitions that run, without a restart, and without a new proof."""
        self.holder.change_settings(changed)
        self._publisher.changed()

    def on_proof(self, response: ProofResponse) -> None:
        """The driver's response to a request for the proof."""
        self._ownership.put(response)

    def work(self, now_s: float) -> None:
        """One turn: events first, then whatever can be sent, then what is drained or to be committed."""
        self.holder.now_s = now_s
        for event in self._events.take():
            self.holder.on_ownership(event)
            if isinstance(event, Begun) or (isinstance(event, Committed) and event.positions):
                self._publisher.changed()
        self.lane.work(now_s)
        for lane_event in self.lane.take_events():
            self.holder.on_lane(lane_event)
        self.holder.work()
        self._publisher.work(self.holder.owned.values(), self.holder.commits.offset, now_s)

    def report(
        self, is_due: Callable[[Partition], bool] = every
    ) -> dict[Partition, PartitionReport]:
        return self.holder.report(is_due)

    def close(self) -> None:
        self.lane.close()
        self._ownership.close()
