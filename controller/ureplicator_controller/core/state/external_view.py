"""External view: the current states of the live workers, merged by partition.

A current state whose session is not its worker's live session is left over from a former process and
is ignored. `state.mismatches` compares the view with the ideal state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ureplicator_common.model import Partition, Route, TopicKey, TopicState, WorkerId
from ureplicator_common.znode_contents import CurrentEntry, CurrentState, IdealEntry
from ureplicator_controller.core.state.by_topic import ByTopic, ByWorker, Merge, TopicEntries
from ureplicator_controller.core.state.snapshot import Snapshot

Reported = ByWorker[CurrentEntry]
"""Reports of each worker of one partition."""

_NOBODY: TopicEntries[CurrentEntry] = {}


class ExternalView(Mapping[Partition, Reported]):
    """Partition -> worker -> the entry that it reports, in no order.

    `by_topic` has the same by topic and number. What views share of a topic is one object: so a reader
    that has seen a topic before finds by identity whether any of it is new.
    """

    __slots__ = ("by_topic",)

    def __init__(self, by_topic: ByTopic[CurrentEntry] | None = None) -> None:
        self.by_topic: ByTopic[CurrentEntry] = by_topic or {}

    def topic(self, key: TopicKey) -> TopicEntries[CurrentEntry]:
        """Number of each partition of a topic that anybody reports -> worker -> entry."""
        return self.by_topic.get(key, _NOBODY)

    def of(self, partition: Partition) -> Reported:
        """Reports of a partition by worker; empty if nobody reports it."""
        return self.topic(partition.key).get(partition.number, {})

    def partitions(self) -> Iterator[tuple[Partition, Reported]]:
        """All of it, as `items`, only faster."""
        for key, topic in self.by_topic.items():
            for number, reported in topic.items():
                yield Partition(key.route, key.topic, number), reported

    def __getitem__(self, partition: Partition) -> Reported:
        return self.by_topic[partition.key][partition.number]

    def __iter__(self) -> Iterator[Partition]:
        return (partition for partition, _ in self.partitions())

    def __len__(self) -> int:
        return sum(map(len, self.by_topic.values()))


def reported_state(snapshot: Snapshot, worker: WorkerId) -> CurrentState | None:
    """Current state that the worker's live session wrote; None without one."""
    stored = snapshot.current.get(worker)
    if stored is None or stored.owner != snapshot.sessions.get(worker):
        return None
    return stored.value


def external_view(
    snapshot: Snapshot, before: tuple[Snapshot, ExternalView] | None = None
) -> ExternalView:
    """Reports of all live workers.

    `before`: an earlier snapshot and its view. Only workers whose report differs are then merged again: in
    a big fleet one of them reports several times a second.
    """
    earlier, view = before or (Snapshot(snapshot.fleet, 0), ExternalView())
    merge = Merge(view.by_topic)
    for worker in sorted({*earlier.current, *snapshot.current}):
        old, new = reported_state(earlier, worker), reported_state(snapshot, worker)
        if old is not new:
            merge.replace(worker, old.entries if old else {}, new.entries if new else {})
    return ExternalView(merge.merged())


def whitelisted_partitions(snapshot: Snapshot, route: Route | None = None) -> Iterable[Partition]:
    """Partitions of all topics that are not being deleted, in order; of one route or of all."""
    for key in sorted(snapshot.topics):
        intent = snapshot.topics[key].value
        if intent.state is TopicState.DELETING or route not in (None, key.route):
            continue
        for number in range(intent.partitions):
            yield Partition(key.route, key.topic, number)


def ideal_entry(snapshot: Snapshot, partition: Partition) -> IdealEntry | None:
    """Ideal state of a partition; None if the leader has not decided on it yet."""
    stored = snapshot.ideal.get(partition.key)
    return stored.value.entries.get(partition.number) if stored else None


def ideal_entries(snapshot: Snapshot) -> Iterator[IdealEntry]:
    """Ideal states of all partitions."""
    return (entry for stored in snapshot.ideal.values() for entry in stored.value.entries.values())


def harm_to(snapshot: Snapshot, partition: Partition) -> str:
    """Harm that the target topic's settings do to records that are to be copied now; "" for none."""
    return snapshot.harm.get(partition.key, "") if is_active(snapshot, partition) else ""


def is_active(snapshot: Snapshot, partition: Partition) -> bool:
    """True if operators want it copied now: neither it nor its route is paused, blacklisted or being deleted.

    A stopped topic is active, yet not copied: that counts as a mismatch.
    """
    stored = snapshot.topics.get(partition.key)
    return (
        stored is not None
        and stored.value.state is TopicState.ACTIVE
        and partition.route not in snapshot.switches.paused_routes
        and partition.key not in snapshot.blacklist
        and partition.number < stored.value.partitions
        and partition.number not in stored.value.blacklisted
    )
