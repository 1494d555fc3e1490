"""Properties of each history, by letter.

T   the node follows the table of states, and only the present leader writes it
L   at OPEN both clusters hold the same records in the same order, up to the ends that the node has; what was
    written before the last look is among them
F   while a fence is to hold, no broker lets clients write; the fleet may write at both clusters
A   after ABORTED rights, the gateway, offsets of groups and intents are as they were
D   after DONE one direction is reversed, and the other one began at the target's ends at OPEN
G   groups that are moved go on at exactly the next record
E   at the end the open cluster holds each record that was acknowledged, once and in order; so does the other
    one, if it is copied; clients may write at the open one
C   everything comes to an end
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ureplicator_common.cutovers import Cutover, CutoverState, FenceKind, Wanted
from ureplicator_common.kafka.acls import WRITE, TopicAcl
from ureplicator_common.kafka.groups import CommittedOffset, TopicPartition
from ureplicator_common.model import Partition, TopicKey, TopicState
from ureplicator_common.znodes.cutovers import decode_cutover
from ureplicator_controller.core.cutover.progress import MAX_STEPS
from ureplicator_controller.core.cutover.states import AT_REST, BEFORE_OPEN, NEXT
from ureplicator_testkit.cutover_histories.clients import Reader
from ureplicator_testkit.cutover_histories.clusters import BOB, CAROL, DAVE, FLEET, Cluster

if TYPE_CHECKING:
    from ureplicator_testkit.cutover_histories.history import History
    from ureplicator_testkit.cutover_histories.leaders import Leader

OPEN, DONE, ABORTED = CutoverState.OPEN, CutoverState.DONE, CutoverState.ABORTED
NAME = "move"
CLIENTS = (BOB, CAROL)


class Violation(BaseException):
    """Not an `Exception`: a thread that survives every error must not hide it."""

    def __init__(self, letter: str, text: str) -> None:
        super().__init__(f"{letter}: {text}")
        self.letter = letter


class Judge:
    """`late`: records written at a cluster that was not open, behind the last look at it. `tampered`:
    clusters where somebody has changed the fence. `rights`: those of each cluster without any fence."""

    def __init__(self, world: History) -> None:
        self.world = world
        self.late: set[int] = set()
        self.tampered: set[str] = set()
        self.rights = {name: set(cluster.acls.acls) for name, cluster in world.clusters.items()}
        self.node: Cutover | None = None
        self.count: Counter[str] = Counter()
        self._named: set[str] = set()
        """Topics that `DAVE` might write when the fence of the run was begun."""
        self.was_closed: dict[str, bool] = {}
        self._seen_at = 0
        self._looked = 0
        self._verified = 0
        self._begun: dict[Partition, int] = {}
        self._groups: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        self._intents: dict[TopicKey, TopicState] = {}

    # The node.

    def _begin(self, node: Cutover) -> None:
        """Note what an abort has to leave."""
        clusters = self.world.clusters
        self.was_closed = {name: cluster.gateway_closed for name, cluster in clusters.items()}
        target = clusters[node.plan.route.target]
        self._groups = {reader.id: reader.offsets(target) for reader in self.world.readers}
        self._intents = self._states()
        for reader in self.world.readers:
            group = target.groups.groups.get(reader.id)
            reader.has_strayed = group is not None and group.state == "Stable"

    def _states(self) -> dict[TopicKey, TopicState]:
        seen = self.world.fleet.contents()
        return {
            key: stored.value.state
            for key, stored in seen.topics.items()
            if key.topic not in self.world.troubled
        }

    def look(self, leader: Leader) -> None:
        """Judge what the leader has written, if it has written the node."""
        fleet = self.world.fleet
        node = fleet.store.node(fleet.paths.cutovers.state(NAME))
        if node is None or node.stat.mzxid == self._seen_at:
            return
        self._seen_at = node.stat.mzxid
        before, self.node = self.node, decode_cutover(node.data)
        if leader.epoch != fleet.contents().epoch:
            raise Violation("T", "a leader of the past has written the node")
        if before is None or before.run != self.node.run:
            self._began(before)
        elif before.wanted is Wanted.PLAN:
            raise Violation("T", f"a run goes on that has ended: {self.node.wanted}")
        elif before.state is not self.node.state:
            self._moved(before)
        elif self.node.fencing and not before.fencing:
            rights = self.rights[self.node.plan.route.source]
            found = (acl for acl in rights if (acl.principal, acl.operation) == (DAVE, WRITE))
            self._named = {acl.name for acl in found}

    def _began(self, before: Cutover | None) -> None:
        assert self.node is not None
        if self.node.state is not CutoverState.PLANNED:
            raise Violation("T", f"a run begins as {self.node.state}")
        if before is not None and before.state in BEFORE_OPEN and before.fencing:
            raise Violation("T", f"a run begins while another one is {before.state}")
        self._begin(self.node)

    def _moved(self, before: Cutover) -> None:
        node = self.node
        assert node is not None
        steps = (*before.steps, *node.steps[-1:])[-MAX_STEPS:]
        if node.state not in NEXT[before.state] or node.steps != steps:
            raise Violation("T", f"{before.state} became {node.state}")
        if node.state is CutoverState.VERIFIED:
            self._verified = self.world.time()
        if node.state is CutoverState.GROUPS:
            self._looked = self.world.time()
            self._check_members(node)
        self.count[node.state] += 1
        reached = {OPEN: self._opened, ABORTED: self._aborted, DONE: self._done}
        if node.state in reached:
            reached[node.state](node)

    # L

    def _opened(self, node: Cutover) -> None:
        for key in self._keys(node):
            self._check_moved(node, key)
            partition = Partition(node.back, *key)
            self._begun[partition] = len(self.world.fleet.copies[partition].begun_at)
        for reader in self.world.readers:
            if reader.committed_at < self._verified:
                self._check_group(node, reader)
        self.world.open = node.plan.route.target

    def _keys(self, node: Cutover) -> Iterator[TopicPartition]:
        for topic, count in node.plan.topics.items():
            if topic not in self.world.troubled:
                yield from ((topic, number) for number in range(count))

    def _check_moved(self, node: Cutover, key: TopicPartition) -> None:
        clusters, route = self.world.clusters, node.plan.route
        source, target = clusters[route.source].logs[key], clusters[route.target].logs[key]
        here = node.ends[key[0]][key[1]]
        there = node.turns[-1].there[key[0]][key[1]] if node.turns else target.end
        behind = zip(source.entries[here:], source.times[here:], strict=True)
        missed = [record for record, time in behind if record >= 0 and time < self._looked]
        if missed:
            raise Violation("L", f"{key}: {missed} were written before the last look")
        self.late.update(record for record in source.entries[here:] if record >= 0)
        left, moved = (
            log.shown(end, without=self.late) for log, end in ((source, here), (target, there))
        )
        if left != moved:
            raise Violation("L", f"{key}: {_difference(left, moved)}")

    # A

    def _aborted(self, node: Cutover) -> None:
        for name in self.world.clusters:
            self._check_rights(node, name, "A")
        for name, was in self.was_closed.items():
            if self.world.clusters[name].gateway_closed != was:
                raise Violation("A", f"the gateway of {name} is not as it was")
        target = self.world.clusters[node.plan.route.target]
        for reader in self.world.readers:
            is_told = f"group {reader.id}" in node.reason
            if (
                reader.home != target.name
                and reader.offsets(target) != self._groups[reader.id]
                and not is_told
            ):
                text = f"{reader.offsets(target)}, not {self._groups[reader.id]}"
                raise Violation("A", f"group {reader.id} is at {text}")
        now = self._states()
        if any(now.get(key) != state for key, state in self._intents.items() if key in now):
            raise Violation("A", f"intents are {now}, not {self._intents}")

    def _check_rights(self, node: Cutover, name: str, letter: str) -> None:
        fence = node.fences.get(name)
        wanted: set[TopicAcl] = set(self.rights[name])
        if fence is not None:
            wanted = (wanted - fence.removed) | fence.added
        found = self.world.clusters[name].acls.acls
        if found == wanted or (fence is not None and name in self.tampered):
            return
        raise Violation(letter, f"rights at {name}: {sorted(map(str, found ^ wanted))} differ")

    # D

    def _done(self, node: Cutover) -> None:
        seen = self.world.fleet.contents()
        for topic in node.plan.topics:
            if topic in self.world.troubled:
                continue
            forward = seen.topics[TopicKey(node.plan.route, topic)].value
            if forward.state is not TopicState.REVERSED:
                raise Violation("D", f"{topic} is still {forward.state}")
            if node.plan.way_back:
                back = seen.topics[TopicKey(node.back, topic)].value
                if back.state is not TopicState.ACTIVE:
                    raise Violation("D", f"{topic} is {back.state} on the way back")
        for key in self._keys(node) if node.plan.way_back else ():
            self._check_began(node, Partition(node.back, *key))
        for reader in self.world.readers:
            self._check_group(node, reader)

    def _check_began(self, node: Cutover, partition: Partition) -> None:
        begun = self.world.fleet.copies[partition].begun_at[self._begun[partition] :]
        wanted = node.turns[-1].there[partition.topic][partition.number]
        if not begun or begun[0] != wanted:
            raise Violation("D", f"{partition} began at {begun[:1]}, not at {wanted}")

    # G

    def _check_members(self, node: Cutover) -> None:
        """Raises Violation if a group that is waited for has members."""
        for reader in self.world.readers if node.plan.waits_for_groups else ():
            if reader.goes_on and reader.home == node.plan.route.source:
                raise Violation("G", f"{reader.id} has members")

    def _check_group(self, node: Cutover, reader: Reader) -> None:
        if node.state is DONE and reader.has_strayed:
            return
        outcome = node.groups.get(reader.id, "")
        is_left = reader.home == node.plan.route.source
        stands = not reader.goes_on or node.state is OPEN
        if is_left and stands and outcome.startswith("synced") and not self.is_exact(reader):
            raise Violation("G", f"{reader.id}: {self._places(reader)}")

    def is_exact(self, reader: Reader) -> bool:
        """True if the group goes on at the other cluster at the next record."""
        return all(here == there for here, there in self._places(reader).values())

    def _places(self, reader: Reader) -> dict[TopicPartition, tuple[int, int]]:
        """Records that the group has read at its cluster, and has passed at the other one."""
        source, target = (
            self.world.clusters[reader.home],
            self.world.clusters[self.world.beside(reader.home)],
        )
        there = reader.offsets(target)
        return {
            key: (
                len(source.logs[key].shown(committed.offset, without=self.late)),
                len(target.logs[key].shown(there[key].offset, without=self.late))
                if key in there
                else -1,
            )
            for key, committed in reader.offsets(source).items()
            if key[0] not in self.world.troubled
        }

    # F

    def watch(self) -> None:
        """Judge who may write now."""
        node = self.node
        if node is None or node.state in AT_REST or node.wanted is Wanted.ABORT:
            return
        source, target = (
            self.world.clusters[name] for name in (node.plan.route.source, node.plan.route.target)
        )
        is_fenced = node.state is not CutoverState.PLANNED and node.plan.fence is not FenceKind.NONE
        if is_fenced and (writers := list(self._writers(source, node))):
            raise Violation("F", f"{writers[0]} at {source.name} in {node.state}")
        is_closed = target.name in node.fences and bool(node.fences[target.name].added)
        if (
            node.state in BEFORE_OPEN
            and is_closed
            and (writers := list(self._writers(target, node)))
        ):
            raise Violation("F", f"{writers[0]} at {target.name} in {node.state}")
        if node.state in BEFORE_OPEN and self.was_closed[target.name] and not target.gateway_closed:
            raise Violation("F", f"the gateway of {target.name} is open in {node.state}")

    def _writers(self, cluster: Cluster, node: Cutover) -> Iterator[str]:
        if cluster.name in self.tampered:
            return
        for topic in node.plan.topics:
            is_named = topic in self._named and cluster.name == node.plan.route.source
            for principal in (*CLIENTS, DAVE) if is_named else CLIENTS:
                if any(cluster.is_open_at(principal, topic)):
                    yield f"{principal} may write {topic}"

    # E

    @property
    def is_settled(self) -> bool:
        """True if no writer is left, and the other cluster has as much as the open one, if it is copied."""
        world = self.world
        if any(writer.let_in or writer.open for writer in world.writers):
            return False
        return not world.copies_back or all(
            len(self._shown(world.open, key)) == len(self._shown(world.other.name, key))
            for key in world.other.logs
            if key[0] not in world.troubled
        )

    def _shown(self, cluster: str, key: TopicPartition) -> Sequence[int]:
        log = self.world.clusters[cluster].logs[key]
        return log.shown(log.end, without=self.late)

    def end(self) -> None:
        node, world = self.node, self.world
        opened = world.clusters[world.open]
        for name in world.clusters if node is not None else ():
            assert node is not None
            self._check_rights(node, name, "E")
        for topic in sorted({topic for topic, _ in opened.logs}):
            if not all(all(opened.is_open_at(who, topic)) for who in CLIENTS):
                raise Violation("E", f"nobody may write {topic} at {opened.name}")
            if world.copies_back and not all(
                all(cluster.is_open_at(FLEET, topic)) for cluster in world.clusters.values()
            ):
                raise Violation("E", f"the fleet may not write {topic}")
        for key in sorted(opened.logs):
            if key[0] not in world.troubled:
                self._check_records(key)

    def _check_records(self, key: TopicPartition) -> None:
        world = self.world
        opened, other = world.clusters[world.open].logs[key], world.other.logs[key]
        shown = opened.shown(opened.end, without=self.late)
        if list(shown) != sorted(set(shown)):
            raise Violation("E", f"{key}: repeated, or out of order: {shown}")
        lost = set(world.acknowledged[key]) - set(shown) - self.late
        if lost:
            raise Violation("E", f"{key}: {sorted(lost)} are lost")
        copied = other.shown(other.end, without=self.late)
        if world.copies_back and copied != shown:
            raise Violation("E", f"{key} of the other cluster: {_difference(shown, copied)}")


def _difference(wanted: Sequence[int], found: Sequence[int]) -> str:
    missing, more = sorted({*wanted} - {*found}), sorted({*found} - {*wanted})
    return f"{missing} are missing, {more} are too much, of {len(wanted)} and {len(found)}"
