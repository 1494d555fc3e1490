"""Fences of a cutover: raised at the source before it is drained, lifted at a cluster that opens again.

What is to be lifted is in the node before anything is changed, and everything may be done twice. A change at
a cluster is not fenced by the leader's epoch. So before each one it is proven that this process leads: one
that was suspended would else raise a fence that its successor has lifted, or lift one of a later run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ureplicator_common.cutovers import AclChange, Cutover, CutoverPlan, FenceKind
from ureplicator_common.errors import TemporaryError
from ureplicator_common.kafka.acls import AclAdmin
from ureplicator_controller.engines.cutover.acl_fence import AclFence
from ureplicator_controller.engines.cutover.clusters import CutoverClusters, FenceProgram

NO_CHANGE = AclChange()
Fences = Mapping[str, AclChange]
"""By cluster."""


class NotLeading(TemporaryError):
    """It is not proven that this process leads, so it changes nothing."""


class Fencing:
    """Fences of one cutover. Every call may raise OperatingError. `name`: of the cutover; `leads`: proves
    that this process leads now."""

    def __init__(
        self,
        name: str,
        clusters: CutoverClusters,
        program: FenceProgram,
        *,
        leads: Callable[[], bool],
    ) -> None:
        self._name = name
        self._clusters = clusters
        self._program = program
        self._leads = leads

    def require_lead(self) -> None:
        """Raises NotLeading."""
        if not self._leads():
            raise NotLeading("another controller may lead by now")

    def changed(self, plan: CutoverPlan) -> str:
        """Reason why the fence of the plan is not the one that is due now; "" if it is."""
        if plan.fence is not FenceKind.ACL:
            return ""
        now = self._source(plan).change(plan.topics)
        if now == plan.acls:
            return ""
        others = sorted(map(str, (now.added | now.removed) ^ (plan.acls.added | plan.acls.removed)))
        return (
            f"access rights at {plan.route.source} were changed since it was planned: {others[0]}"
        )

    def _source(self, plan: CutoverPlan) -> AclFence:
        return self._at(self._clusters.source_acls, plan)

    def _at(self, admin: AclAdmin, plan: CutoverPlan) -> AclFence:
        return AclFence(
            admin, principal=plan.principal, way_back=plan.way_back, prove=self.require_lead
        )

    def _call(self, verb: str, plan: CutoverPlan) -> None:
        self.require_lead()
        self._program.call(verb, self._name, plan)

    def raise_(self, plan: CutoverPlan) -> str:
        """Raise the fence of the plan; what it does not hold at yet, in words, or ""."""
        if plan.fence is FenceKind.ACL:
            self._source(plan).apply(plan.acls)
        elif plan.fence is FenceKind.COMMAND:
            self._call("fence", plan)
        return self.lacking(plan)

    def lacking(self, plan: CutoverPlan) -> str:
        """What the fence does not hold at, or has lost since, in words; "" if it holds everywhere."""
        if plan.fence is not FenceKind.ACL:
            return ""
        return self._source(plan).lagging(plan.acls)

    def take_down(self, cutover: Cutover) -> str:
        """Lift what an aborted cutover has raised; what does not show it yet, in words, or ""."""
        plan = cutover.plan
        if plan.fence is FenceKind.COMMAND:
            self._call("abort", plan)
        return _lifted(self._source(plan), plan.acls)

    def open(self, cutover: Cutover) -> str:
        """Let clients write at the target, which a former cutover may have fenced; what does not show it
        yet, in words, or ""."""
        plan = cutover.plan
        there = self._at(self._clusters.target_acls, plan)
        fence = cutover.fences.get(plan.route.target, NO_CHANGE)
        lacking = _lifted(there, fence.of(plan.topics))
        if not lacking and plan.fence is FenceKind.COMMAND:
            self._call("open", plan)
        return lacking


def with_fence(fences: Fences, cluster: str, fence: AclChange) -> Fences:
    """The fences in force, with another one: on other topics there may be one already."""
    return {**fences, cluster: fences.get(cluster, NO_CHANGE) | fence}


def without_fence(fences: Fences, cluster: str, fence: AclChange) -> Fences:
    left = fences.get(cluster, NO_CHANGE) - fence
    others = {name: at for name, at in fences.items() if name != cluster}
    return others if left == NO_CHANGE else {**others, cluster: left}


def _lifted(rights: AclFence, fence: AclChange) -> str:
    if fence == NO_CHANGE:
        return ""
    rights.apply(fence.reversed)
    return rights.lagging(fence.reversed)
