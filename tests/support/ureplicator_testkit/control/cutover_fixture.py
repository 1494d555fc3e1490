"""REST of a fleet with routes in both directions, whose `orders` can be cut over."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flask import Response, request

from ureplicator_common.audits import TopicAudit, VerifiedRange
from ureplicator_common.cutovers import Cutover, CutoverRequest
from ureplicator_common.kafka.acls import ALLOW, LITERAL, WRITE, TopicAcl
from ureplicator_common.model import (
    OwnerEpoch,
    Partition,
    PartitionState,
    Route,
    RouteSettings,
    TopicKey,
    TopicState,
    WorkerId,
)
from ureplicator_common.znode_contents import CurrentEntry, CurrentState, PartitionLoad, TopicIntent
from ureplicator_common.znodes.audits import encode_audit_state
from ureplicator_common.znodes.cutovers import (
    decode_cutover_request,
    encode_cutover,
    encode_cutover_request,
)
from ureplicator_common.znodes.workers import encode_current
from ureplicator_testkit.control.rest_fixture import ROUTE, RestFixture

BACK = Route("target", "source")
BOTH_WAYS = (
    {"source": "source", "target": "target", "offset_map": True},
    {"source": "target", "target": "source", "offset_map": True},
)
ONLINE = CurrentEntry(PartitionState.ONLINE, OwnerEpoch(1))
OWN_RIGHT = TopicAcl("orders", LITERAL, "User:ANONYMOUS", "*", WRITE, ALLOW)
"""The fleet has no login."""
COPIED = PartitionLoad(records_per_s=500.0, lag=0)


class CutoverRest(RestFixture):
    """`orders`, verified and copied by `w1`, and a group that has read some of it."""

    def __init__(self, *, described: bool = False, now_s: float = 0.0) -> None:
        super().__init__(BOTH_WAYS, described=described)
        self.clock.advance(max(0.0, now_s - self.clock.monotonic_s()))
        self._current: dict[Partition, CurrentEntry] = {}
        self._loads: dict[Partition, PartitionLoad] = {}
        self.on_start: Callable[[], object] = lambda: None
        """Called when something was requested of a plan, before the response to it."""
        self.app.after_request(self._after)
        for route in (ROUTE, BACK):
            self.publish(RouteSettings(offset_map=True), route=route)
        self.put_intent("orders", TopicIntent(4, 4, target_topic="orders"))
        self.add_worker("w1")
        self.copy("orders", ROUTE)
        self.verify("orders")
        self.acls["source"].acls = {OWN_RIGHT}
        self.groups.add("billing", {("orders", 0): 30})

    def _after(self, response: Response) -> Response:
        if response.status_code == 200 and request.path.endswith(("/start", "/rehearse", "/back")):
            self.on_start()
        return response

    def request(self, name: str = "move") -> CutoverRequest:
        node = self.other_client.get(self.paths.cutovers.request(name))
        assert node is not None
        return decode_cutover_request(node.data)

    def put_request(self, request: CutoverRequest, name: str = "move") -> None:
        self.put(self.paths.cutovers.request(name), encode_cutover_request(request))

    def put_cutover(self, cutover: Cutover, name: str = "move") -> None:
        self.put(self.paths.cutovers.state(name), encode_cutover(cutover))

    def copy(
        self,
        topic: str,
        route: Route,
        numbers: Sequence[int] = range(4),
        *,
        load: PartitionLoad = COPIED,
        entry: CurrentEntry = ONLINE,
    ) -> None:
        """`w1` copies these partitions, too."""
        partitions = [Partition(route, topic, number) for number in numbers]
        self._current |= dict.fromkeys(partitions, entry)
        self._loads |= dict.fromkeys(partitions, load)
        current = CurrentState(seen_zxid=1, entries=dict(self._current))
        path = self.paths.current_state(WorkerId("w1"))
        self.put(path, encode_current(current), ephemeral=True)
        self.put_loads("w1", self._loads)

    def verify(self, topic: str, *, partitions: int = 4) -> None:
        now_ms = self.clock.wall_ms()
        ranges = {number: VerifiedRange(0, 100, now_ms) for number in range(partitions)}
        path = self.paths.audits.state(TopicKey(ROUTE, topic))
        self.put(path, encode_audit_state(TopicAudit(partitions=ranges)))

    def turn(self, topic: str, *, partitions: int = 4) -> None:
        """The topic as a cutover leaves it: reversed, and copied back."""
        there = TopicIntent(partitions, partitions, state=TopicState.REVERSED, target_topic=topic)
        self.put_intent(topic, there)
        self.put_intent(topic, TopicIntent(partitions, 0, target_topic=topic), route=BACK)
        self.copy(topic, BACK, range(partitions))
