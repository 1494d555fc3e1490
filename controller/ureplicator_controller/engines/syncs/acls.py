"""Access rights on target topics: read, compared and changed by the leader.

The route's own rights are in `acls/<route>`. The node is written, at the version that was read and fenced by
the epoch, before each change at the target: so what was decided on is current, and every right of the route's
own is written down. It is written again with what was achieved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from ureplicator_common.config.route import RouteConfig
from ureplicator_common.coordination import Coordination
from ureplicator_common.errors import OperatingError
from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_common.kafka.acls import PREFIXED, AclAdmin, AclRefused, NoAuthorizer, TopicAcl
from ureplicator_common.znode_contents import RouteAcls, SyncKind
from ureplicator_common.znodes.paths import Paths
from ureplicator_common.znodes.routes import decode_acls, encode_acls
from ureplicator_controller.core.state.snapshot import Snapshot
from ureplicator_controller.core.syncs.acls import (
    MAX_ACLS,
    AclPlan,
    Acls,
    acl_plan,
    first_rights,
    wanted_acls,
)
from ureplicator_controller.core.syncs.topics import (
    SyncedTopic,
    held_targets,
    route_settings,
    synced_topics,
)
from ureplicator_controller.engines.fenced_writer import FencedNode, FencedWriter
from ureplicator_controller.engines.syncs.ends import Ends
from ureplicator_controller.engines.syncs.thread import Term
from ureplicator_controller.engines.syncs.topic_sync import TopicSync, TopicSyncState

LOCKS_OUT = AclRefused(
    "the first right on a topic closes it to all others, and to the copiers, where the brokers have"
    " allow.everyone.if.no.acl.found. Give the copiers' principal WRITE at the target on this topic, on its"
    " prefix or on all topics (*)"
)
"""Refusal also where the brokers do not show whether they have it."""
TOO_MANY = AclRefused(f"the route has added {MAX_ACLS} rights, the maximum")


class AclWork:
    """Adds and removes rights at the target. `Work` of a sync."""

    kind = SyncKind.ACLS

    def __init__(
        self,
        *,
        config: RouteConfig,
        source: Callable[[], AclAdmin],
        target: Callable[[], AclAdmin],
        coordination: Coordination,
        paths: Paths,
        writer: FencedWriter,
    ) -> None:
        self._config = config
        self._ends = Ends(source, target)
        self._node = FencedNode(coordination, paths.route_acls(config.route), writer)

    def perform(self, snapshot: Snapshot, term: Term) -> Mapping[str, TopicSync]:
        source, target = self._ends.opened()
        may_write = term.reading()
        own = self._own()
        try:
            wanted, plan = self._plan(snapshot, own, source=source.read(), target=target.read())
        except NoAuthorizer as error:
            return {"*": TopicSync(TopicSyncState.NO_AUTHORIZER, str(error))}
        outcomes = {_subject(acl): TopicSync(TopicSyncState.EQUAL) for acl in wanted}
        left = dict.fromkeys(plan.left, TOO_MANY) | dict.fromkeys(plan.withheld, LOCKS_OUT)
        if plan.is_quiet:
            return outcomes | _refused(left)
        if not may_write() or not self._store(plan.before, term):
            return outcomes | {
                _subject(acl): TopicSync(TopicSyncState.PENDING) for acl in plan.add | plan.remove
            }
        failed = _changed(target, plan, may_write)
        self._store(_achieved(plan, failed), term)
        return outcomes | _outcomes(plan, failed | left)

    def _plan(
        self, snapshot: Snapshot, own: Acls, *, source: Acls, target: Acls
    ) -> tuple[Acls, AclPlan]:
        """The rights that the target should have, and the changes that lead there."""
        route, configured = self._config.route, self._config.settings
        topics = self._same(synced_topics(snapshot, route))
        prefix = route_settings(snapshot, route, configured).prefix
        wanted = wanted_acls(source, topics, prefix=prefix)
        return wanted, acl_plan(
            wanted,
            target=target,
            added=own,
            synced=frozenset(topic.target for topic in topics),
            held=held_targets(snapshot, route, configured, topics),
            withheld=self._withheld(wanted - target, target),
        )

    def _same(self, topics: tuple[SyncedTopic, ...]) -> tuple[SyncedTopic, ...]:
        """Topics that the source has, by their ids: rights on the copies of any others stay. A
        cluster's name may lead to another one, and a topic may have been recreated."""
        source, _ = self._ends.opened()
        others = source.others(
            {topic.source: topic.source_id for topic in topics if topic.source_id}
        )
        return tuple(topic for topic in topics if topic.source not in others)

    def _withheld(self, due: Acls, present: Acls) -> Acls:
        """Rights that could lock the copiers out."""
        _, target = self._ends.opened()
        first = first_rights(due, present)
        return first if first and target.opens_topics() else frozenset()

    def _own(self) -> Acls:
        """The route's own rights as they are written down. Raises Unavailable, and UnreadableContent: then
        nothing is changed."""
        data = self._node.read()
        return frozenset() if data is None else decode_acls(data).added

    def _store(self, added: Acls, term: Term) -> bool:
        """See `FencedNode.write`."""
        return self._node.write(encode_acls(RouteAcls(added)), epoch=term.epoch)

    def close(self) -> None:
        self._ends.close()


def _changed(
    target: AclAdmin, plan: AclPlan, may_write: Callable[[], bool]
) -> dict[TopicAcl, OperatingError]:
    """Add and remove the rights; those that failed. Added first: one that takes the place of another leaves
    no time without both."""
    failed: dict[TopicAcl, OperatingError] = {}
    for change, acls in ((target.add, plan.add), (target.remove, plan.remove)):
        if acls and not may_write():
            failed |= dict.fromkeys(acls, ClusterUnavailable("leadership was lost"))
            continue
        try:
            failed |= change(sorted(acls))
        except OperatingError as error:
            failed |= dict.fromkeys(acls, error)
    return failed


def _achieved(plan: AclPlan, failed: Mapping[TopicAcl, OperatingError]) -> Acls:
    """The route's own rights. One that was refused is none; one whose outcome is not known may be."""
    refused = {acl for acl, error in failed.items() if isinstance(error, AclRefused)}
    return (plan.after - (plan.add & refused)) | (plan.remove & failed.keys())


def _outcomes(plan: AclPlan, failed: Mapping[TopicAcl, OperatingError]) -> dict[str, TopicSync]:
    outcomes: dict[str, TopicSync] = {}
    for acl, text in _texts(plan):
        if acl not in failed:
            before = outcomes.get(_subject(acl), TopicSync(TopicSyncState.CHANGED))
            reason = "; ".join(filter(None, (before.reason, text)))
            outcomes[_subject(acl)] = replace(before, reason=reason, changes=before.changes + 1)
    for subject, outcome in _refused(failed).items():
        changes = outcomes[subject].changes if subject in outcomes else 0
        outcomes[subject] = replace(outcome, changes=changes)
    return outcomes


def _texts(plan: AclPlan) -> Iterator[tuple[TopicAcl, str]]:
    yield from ((acl, f"added at the target: {acl}") for acl in sorted(plan.add))
    yield from ((acl, f"removed at the target: {acl}") for acl in sorted(plan.remove))


def _refused(failed: Mapping[TopicAcl, OperatingError]) -> dict[str, TopicSync]:
    return {
        _subject(acl): TopicSync(
            TopicSyncState.REFUSED if isinstance(error, AclRefused) else TopicSyncState.UNKNOWN,
            f"{acl}: {error}",
        )
        for acl, error in sorted(failed.items())
    }


def _subject(acl: TopicAcl) -> str:
    return f"{acl.name}*" if acl.pattern == PREFIXED else acl.name
