"""Access rights for the plan of a cutover: those of both clusters, and the change that fences the source."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

from ureplicator_common.cutovers import AclChange, Cutover, CutoverPlan
from ureplicator_common.kafka.acls import AclAdmin, AclRefused, NoAuthorizer
from ureplicator_controller.core.cutover.acl_fence import Unfenceable
from ureplicator_controller.core.cutover.facts import ClusterRights
from ureplicator_controller.engines.cutover.acl_fence import AclFence

NO_CHANGE = AclChange()


class RightsReader:
    """Every call may raise ClusterUnavailable. `acls` connects to a cluster by its name."""

    def __init__(self, acls: Callable[[str], AclAdmin]) -> None:
        self._acls = acls

    def fence(self, plan: CutoverPlan) -> tuple[AclChange, str]:
        """Change by which the fence of the plan keeps producers out, and why there is none, or ""."""
        with closing(self._acls(plan.route.source)) as admin:
            fence = AclFence(admin, principal=plan.principal, way_back=plan.way_back)
            try:
                return fence.change(plan.topics), ""
            except (NoAuthorizer, AclRefused, Unfenceable) as error:
                return NO_CHANGE, str(error)

    def of(self, cluster: str, before: Cutover | None) -> ClusterRights:
        """Rights of a cluster on topics. `before`: the run whose fence is lifted before clients come."""
        lifted = before.fences.get(cluster, NO_CHANGE) if before is not None else NO_CHANGE
        with closing(self._acls(cluster)) as admin:
            try:
                found = admin.read()
                opens_topics = admin.opens_topics()
            except NoAuthorizer:
                return ClusterRights()
            except AclRefused as error:
                return ClusterRights(unread=str(error))
        return ClusterRights(
            acls=(found - lifted.added) | lifted.removed, opens_topics=opens_topics
        )
