"""Paths of the nodes of a fleet: see the table in `znodes`."""

from __future__ import annotations

from ureplicator_common.model import Route, TopicKey, WorkerId
from ureplicator_common.znode_contents import SyncKind


class AuditPaths:
    """Node paths of audits."""

    def __init__(self, root: str) -> None:
        self.states = f"{root}/states"
        self.requests = f"{root}/requests"
        self.claims = f"{root}/claims"
        self.followers = f"{root}/followers"
        self.auditors = f"{root}/auditors"

    @property
    def skeleton(self) -> tuple[str, ...]:
        return (self.states, self.requests, self.claims, self.followers, self.auditors)

    def state(self, key: TopicKey) -> str:
        return f"{self.states}/{key}"

    def request(self, key: TopicKey) -> str:
        return f"{self.requests}/{key}"

    def claim(self, key: TopicKey) -> str:
        return f"{self.claims}/{key}"

    def follower(self, route: Route) -> str:
        return f"{self.followers}/{route}"

    def auditor(self, id: str) -> str:
        return f"{self.auditors}/{id}"


class MeasurePaths:
    """Node paths of what workers measure, which change all the time."""

    def __init__(self, root: str) -> None:
        self.loads = f"{root}/loads"
        self.usages = f"{root}/usage"

    def load(self, worker: WorkerId) -> str:
        return f"{self.loads}/{worker}"

    def usage(self, worker: WorkerId) -> str:
        return f"{self.usages}/{worker}"


class CutoverPaths:
    """Node paths of cutovers."""

    def __init__(self, root: str) -> None:
        self.states = f"{root}/cutovers"
        self.requests = f"{root}/cutover-requests"

    def state(self, name: str) -> str:
        return f"{self.states}/{name}"

    def request(self, name: str) -> str:
        return f"{self.requests}/{name}"


class Paths:
    """Node paths of one fleet."""

    def __init__(self, fleet: str) -> None:
        self.fleet = fleet
        self.root = f"/ureplicator/{fleet}"
        self.epoch = f"{self.root}/epoch"
        self.leader = f"{self.root}/leader"
        self.controllers = f"{self.root}/controllers"
        self.workers_live = f"{self.root}/workers/live"
        self.workers_known = f"{self.root}/workers/known"
        self.workers_registered = f"{self.root}/workers/registered"
        self.routes = f"{self.root}/routes"
        self.topics = f"{self.root}/topics"
        self.targets = f"{self.root}/targets"
        self.blacklist = f"{self.root}/blacklist"
        self.memory = f"{self.root}/memory"
        self.acls = f"{self.root}/acls"
        self.groups = f"{self.root}/groups"
        self.syncs = f"{self.root}/syncs"
        self.ideal = f"{self.root}/ideal"
        self.assignments = f"{self.root}/assignments"
        self.shares = f"{self.root}/shares"
        self.current = f"{self.root}/current"
        self.measures = MeasurePaths(self.root)
        self.settings = f"{self.root}/settings"
        self.history = f"{self.root}/history"
        self.isolated = f"{self.root}/isolated"
        self.audits = AuditPaths(f"{self.root}/audits")
        self.cutovers = CutoverPaths(self.root)

    @property
    def skeleton(self) -> tuple[str, ...]:
        """Persistent parents that every process ensures at start."""
        return (
            self.epoch,
            self.controllers,
            self.workers_live,
            self.workers_known,
            self.workers_registered,
            self.routes,
            self.topics,
            self.targets,
            self.blacklist,
            self.memory,
            self.acls,
            self.groups,
            *(f"{self.syncs}/{kind}" for kind in SyncKind),
            self.ideal,
            self.assignments,
            self.shares,
            self.current,
            self.measures.loads,
            self.measures.usages,
            *self.audits.skeleton,
            self.cutovers.states,
            self.cutovers.requests,
        )

    def controller(self, id: str) -> str:
        return f"{self.controllers}/{id}"

    def worker_live(self, worker: WorkerId) -> str:
        return f"{self.workers_live}/{worker}"

    def worker_known(self, worker: WorkerId) -> str:
        return f"{self.workers_known}/{worker}"

    def worker_registration(self, worker: WorkerId) -> str:
        return f"{self.workers_registered}/{worker}"

    def route(self, route: Route) -> str:
        return f"{self.routes}/{route}"

    def topic(self, key: TopicKey) -> str:
        return f"{self.topics}/{key}"

    def target(self, cluster: str, topic: str) -> str:
        return f"{self.targets}/{cluster}/{topic}"

    def blacklisted(self, key: TopicKey) -> str:
        return f"{self.blacklist}/{key}"

    def route_memory(self, route: Route) -> str:
        return f"{self.memory}/{route}"

    def route_acls(self, route: Route) -> str:
        return f"{self.acls}/{route}"

    def gone_groups(self, route: Route) -> str:
        return f"{self.groups}/{route}"

    def sync(self, kind: SyncKind, route: Route) -> str:
        return f"{self.syncs}/{kind}/{route}"

    def ideal_topic(self, key: TopicKey) -> str:
        return f"{self.ideal}/{key}"

    def assignment(self, worker: WorkerId) -> str:
        return f"{self.assignments}/{worker}"

    def slot_shares(self, worker: WorkerId) -> str:
        return f"{self.shares}/{worker}"

    def current_state(self, worker: WorkerId) -> str:
        return f"{self.current}/{worker}"

    def history_block(self, number: int) -> str:
        return f"{self.history}/{number}"
