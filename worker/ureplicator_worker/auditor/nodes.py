"""Requests, claims and states of audits in ZooKeeper, as an auditor reads and writes them.

A claim is an ephemeral node: the auditor that creates it carries the request out. Progress is written
to it. The end of an audit is one transaction: the state, merged with what was there, without the request and
the claim.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from ureplicator_common.audits import (
    Follower,
    LiveAuditor,
    RequestedAudit,
    RunningAudit,
    TopicAudit,
)
from ureplicator_common.coordination import (
    Check,
    Conflict,
    ConflictReason,
    Coordination,
    Create,
    Delete,
    Node,
    Operation,
    OutcomeUnknown,
    Set,
    TreeCache,
    create_or_set,
    version_of,
)
from ureplicator_common.coordination.edit import Edit, edit
from ureplicator_common.errors import OperatingError, PermanentError
from ureplicator_common.leaf_nodes import leaf_of
from ureplicator_common.model import Route, RouteSettings, TopicKey
from ureplicator_common.znode_contents import TopicIntent
from ureplicator_common.znodes.audits import (
    decode_audit_request,
    decode_audit_state,
    encode_audit_claim,
    encode_audit_request,
    encode_audit_state,
    encode_auditor,
    encode_follower,
)
from ureplicator_common.znodes.codec import UnreadableContent
from ureplicator_common.znodes.paths import Paths
from ureplicator_common.znodes.routes import decode_route
from ureplicator_common.znodes.topics import decode_intent

logger = logging.getLogger(__name__)

WRITE_TIMEOUT_S = 10.0
"""Retries of a contended write, or of one of unknown outcome."""

Change = Callable[[TopicAudit | None], TopicAudit]


class Withdrawn(OperatingError):
    """The request is gone: operators cancelled it, or its topic was deleted."""


class ClaimLost(OperatingError):
    """The claim is not ours any more: the session was lost. Another auditor may carry the request out."""


T = TypeVar("T")


def _readable(path: str, node: Node, decode: Callable[[bytes], T]) -> T:
    """Raises PermanentError."""
    try:
        return decode(node.data)
    except UnreadableContent as error:
        raise PermanentError(f"{path} in ZooKeeper cannot be read: {error}") from error


class AuditNodes:
    """Every call may raise Unavailable and OutcomeUnknown. Threads of an auditor share it."""

    def __init__(self, coordination: Coordination, *, paths: Paths, auditor: str) -> None:
        self._coordination = coordination
        self._paths = paths
        self._auditor = auditor
        self._lock = threading.Lock()
        self._caches: dict[str, TreeCache] = {}

    def register(self, live: LiveAuditor) -> bool:
        """Publish that this auditor lives; False if another live process has its id."""
        path = self._paths.audits.auditor(self._auditor)
        return self._own(path, encode_auditor(live))

    def requests(self) -> Iterator[tuple[TopicKey, RequestedAudit]]:
        """Requests that no auditor has claimed, the oldest first. They are found in a tree cache: without
        any, asking for them every second costs nothing."""
        root = f"{self._paths.audits.requests}/"
        found = []
        for path in self._cached(self._paths.audits.requests):
            route, _, topic = path.removeprefix(root).partition("/")
            if not path.startswith(root) or not topic:
                continue
            key = TopicKey(Route.parse(route), topic)
            if self._coordination.get(self._paths.audits.claim(key)) is not None:
                continue
            if (wanted := self._request(key)) is not None:
                found.append((key, wanted))
        yield from sorted(found, key=lambda request: request[1].requested_ms)

    def intent(self, key: TopicKey) -> TopicIntent | None:
        """Raises PermanentError: it cannot be read."""
        path = self._paths.topic(key)
        node = self._coordination.get(path)
        return _readable(path, node, decode_intent) if node else None

    def settings(self, route: Route) -> RouteSettings | None:
        """Settings as the leader publishes them for workers, from a tree cache; None: it has not yet.
        Raises PermanentError: they cannot be read."""
        path = self._paths.route(route)
        node = self._cached(self._paths.routes).get(path)
        return _readable(path, node, decode_route) if node else None

    def topics(self, route: Route) -> dict[TopicKey, TopicIntent]:
        """Whitelisted topics of a route, from a tree cache; one that cannot be read is left out."""
        root = f"{self._paths.topics}/{route}/"
        found = {}
        for path, node in self._cached(self._paths.topics).items():
            if not path.startswith(root):
                continue
            try:
                found[TopicKey(route, path.removeprefix(root))] = decode_intent(node.data)
            except UnreadableContent as error:
                logger.warning("%s cannot be read: %s", path, error)
        return found

    def state(self, key: TopicKey) -> TopicAudit | None:
        """The state in a tree cache. None also if it cannot be read: it is written again."""
        nodes = self._cached(self._paths.audits.states)
        return self._decoded(key, nodes.get(self._paths.audits.state(key)))

    # Claims.

    def claim(self, key: TopicKey, wanted: RequestedAudit, running: RunningAudit) -> bool:
        """True if the request is ours from now on, with one more attempt written to it."""
        path, request = self._paths.audits.claim(key), self._paths.audits.request(key)
        node = self._coordination.get(request)
        if node is None or self._read_request(request, node) != wanted:
            return False
        begun = encode_audit_request(replace(wanted, attempts=wanted.attempts + 1))
        self._coordination.ensure(path.rpartition("/")[0])
        return self._own(path, encode_audit_claim(running), Set(request, begun, node.stat.version))

    def progress(self, key: TopicKey, running: RunningAudit) -> None:
        """Write the progress. Raises Withdrawn and ClaimLost."""
        wanted = self._request(key)
        if wanted is None or wanted.id != running.id:
            raise Withdrawn(f"audit {running.id} of {key} was withdrawn")
        path = self._paths.audits.claim(key)
        node = self._coordination.get(path)
        if node is None or node.stat.owner != self._coordination.session():
            raise ClaimLost(f"the claim on audit {running.id} of {key} is lost")
        data = encode_audit_claim(running)
        if data == node.data:
            return
        try:
            self._coordination.transact([Set(path, data, node.stat.version)])
        except Conflict as conflict:
            raise ClaimLost(f"the claim on audit {running.id} of {key} is lost") from conflict

    def release(self, key: TopicKey) -> None:
        """Delete our claim, if it is still there."""
        self._disown(self._paths.audits.claim(key))

    def follow(self, route: Route, follower: Follower) -> bool:
        """True if this auditor follows behind the copy of the route."""
        return self._own(self._paths.audits.follower(route), encode_follower(follower))

    # States.

    def write(self, key: TopicKey, change: Change) -> None:
        """Change the state of a topic that is whitelisted."""
        self._edit(key, change, lambda: ())

    def finish(self, key: TopicKey, request: str, change: Change) -> None:
        """Change the state, and delete the request that it is the outcome of. A topic that is not
        whitelisted has no state: its request is only deleted."""

        def more() -> tuple[Operation, ...]:
            path = self._paths.audits.request(key)
            node = self._coordination.get(path)
            wanted = self._request(key)
            if node is None or wanted is None or wanted.id != request:
                return ()
            return (Delete(path, node.stat.version),)

        self._edit(key, change, more)

    def _edit(
        self, key: TopicKey, change: Change, more: Callable[[], tuple[Operation, ...]]
    ) -> None:
        path, topic = self._paths.audits.state(key), self._paths.topic(key)
        after: TopicAudit | None = None

        def decide(node: Node | None) -> Edit[None]:
            nonlocal after
            whitelisted = self._coordination.get(topic)
            if whitelisted is None:
                return Edit(None, more())
            after = change(self._decoded(key, node))
            data = encode_audit_state(after)
            there = Check(topic, whitelisted.stat.version)
            return Edit(None, [there, create_or_set(path, data, version_of(node)), *more()])

        self._coordination.ensure(path.rpartition("/")[0])
        edit(
            self._coordination,
            path,
            decide,
            lambda node: node is not None and self._decoded(key, node) == after,
            timeout_s=WRITE_TIMEOUT_S,
            also=(topic, self._paths.audits.request(key)),
        )

    # Nodes.

    def _cached(self, root: str) -> Mapping[str, Node]:
        """Nodes below `root`: a pass over thousands of topics does not read each of them."""
        with self._lock:
            if root not in self._caches:
                self._caches[root] = self._coordination.tree_cache(
                    root, lambda: None, is_leaf=leaf_of(self._paths)
                )
                self._caches[root].refresh()
            cache = self._caches[root]
        return cache.nodes()

    def _own(self, path: str, data: bytes, *more: Operation) -> bool:
        """Create an ephemeral node, with `more` if it is new; True if it is ours, also since before."""
        node = self._coordination.get(path)
        if node is not None:
            return node.stat.owner == self._coordination.session()
        try:
            self._coordination.transact([Create(path, data, ephemeral=True), *more])
        except Conflict as conflict:
            if conflict.operation.path == path and conflict.reason != ConflictReason.NODE_EXISTS:
                raise
        except OutcomeUnknown:
            self._coordination.sync(path)
        node = self._coordination.get(path)
        return node is not None and node.stat.owner == self._coordination.session()

    def _disown(self, path: str) -> None:
        node = self._coordination.get(path)
        if node is None or node.stat.owner != self._coordination.session():
            return
        try:
            self._coordination.transact([Delete(path, node.stat.version)])
        except Conflict:
            return  # it went with the session

    def _request(self, key: TopicKey) -> RequestedAudit | None:
        path = self._paths.audits.request(key)
        node = self._coordination.get(path)
        return self._read_request(path, node) if node else None

    def _read_request(self, path: str, node: Node) -> RequestedAudit | None:
        """None also if it cannot be read: REST lists it, an operator cancels it."""
        try:
            return decode_audit_request(node.data)
        except UnreadableContent as error:
            logger.warning("%s cannot be read: %s", path, error)
            return None

    def _decoded(self, key: TopicKey, node: Node | None) -> TopicAudit | None:
        try:
            return decode_audit_state(node.data) if node else None
        except UnreadableContent as error:
            logger.warning("%s cannot be read: %s", self._paths.audits.state(key), error)
            return None
