"""Live switches of the fleet (auto-balancing, freeze, paused routes) and requests for a rebalance."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from ureplicator_common.config.live_changes import (
    Changes,
    encoded_changes,
    merged_changes,
    readable_changes,
)
from ureplicator_common.coordination import Node, create_or_set, version_of
from ureplicator_common.coordination.edit import Edit
from ureplicator_common.model import Route
from ureplicator_common.znode_contents import Switches
from ureplicator_common.znodes.fleet import decode_switches, encode_switches
from ureplicator_controller.api.http.preconditions import ALWAYS, Precondition
from ureplicator_controller.api.services.fleet_cache import FleetCache
from ureplicator_controller.api.services.node_editor import NodeEditor, decoded
from ureplicator_controller.core.reporting.tasks import CANCELLED
from ureplicator_controller.core.state.mass_loss import lost_workers


class SwitchService:
    """Writes the `settings` node. Every call may raise Problem and Unavailable."""

    def __init__(
        self,
        *,
        fleet: FleetCache,
        editor: NodeEditor,
        new_id: Callable[[], str],
    ) -> None:
        self._fleet = fleet
        self._path = fleet.paths.settings
        self._editor = editor
        self._new_id = new_id

    def set(
        self, change: Callable[[Switches], Switches], condition: Precondition = ALWAYS
    ) -> Switches:
        """Change switches; returns all of them afterwards."""
        return self._edit(change, self._new_id(), condition)

    def pause_route(
        self, route: Route, *, paused: bool, condition: Precondition = ALWAYS
    ) -> Switches:
        """Pause or resume a whole route."""

        def change(now: Switches) -> Switches:
            others = now.paused_routes - {route}
            return replace(now, paused_routes=others | {route} if paused else others)

        return self.set(change, condition)

    def change_route(
        self,
        route: Route,
        given: Changes,
        check: Callable[[Changes, Mapping[Route, str]], object],
        condition: Precondition = ALWAYS,
        *,
        dry_run: bool = False,
    ) -> Changes:
        """Change settings of a route beside those that are changed already; None: as in the file again.

        Returns all changes of the route. `check`: raises for changes that cannot be, beside those that are
        stored of the other routes.
        """

        def change(now: Switches) -> Switches:
            after = merged_changes(readable_changes(now.route_settings.get(route, "")), given)
            check(after, now.route_settings)
            texts = {key: text for key, text in now.route_settings.items() if key != route}
            if after:
                texts[route] = encoded_changes(after)
            return replace(now, route_settings=texts)

        before = self._fleet.current().snapshot.switches
        changed = change(before) if dry_run else self.set(change, condition)
        return readable_changes(changed.route_settings.get(route, ""))

    def unfreeze(self, condition: Precondition = ALWAYS) -> Switches:
        """Allow automatic moves again, also those off the workers that are lost at this time."""
        lost = lost_workers(self._fleet.current().snapshot)
        return self.set(partial(replace, frozen=False, confirmed_lost=lost), condition)

    def rebalance(
        self, condition: Precondition = ALWAYS, *, confirms_loss: bool = False, plan: str = ""
    ) -> str:
        """Request a rebalance now, any or only this plan; returns the id of the request."""
        request_id = self._new_id()

        def change(now: Switches) -> Switches:
            after = replace(now, rebalance_requested=request_id, rebalance_plan=plan)
            if not confirms_loss:
                return after
            return replace(after, confirmed_lost=lost_workers(self._fleet.current().snapshot))

        self._edit(change, request_id, condition)
        return request_id

    def cancel_rebalance(self, request: str, condition: Precondition = ALWAYS) -> bool:
        """Withdraw a requested rebalance; False if the leader has begun it."""

        def change(now: Switches) -> Switches:
            is_due = now.rebalance_requested == request and now.rebalance_done != request
            if not is_due:
                return now
            return replace(
                now, rebalance_done=request, rebalance_plan="", rebalance_outcome=CANCELLED
            )

        after = self._edit(change, self._new_id(), condition)
        return after.rebalance_done == request and after.rebalance_outcome == CANCELLED

    def _edit(
        self, change: Callable[[Switches], Switches], request_id: str, condition: Precondition
    ) -> Switches:
        def decide(node: Node | None) -> Edit[Switches]:
            before = self._decoded(node)
            after = change(before)
            if after == before:
                return Edit(after)
            data = encode_switches(replace(after, request_id=request_id))
            return Edit(after, [create_or_set(self._path, data, version_of(node))])

        def applied(node: Node | None) -> bool:
            return self._decoded(node).request_id == request_id

        return self._editor.edit(self._path, decide, applied, expected=condition.allows)

    def _decoded(self, node: Node | None) -> Switches:
        return decoded(self._path, node, decode_switches) if node else Switches()
