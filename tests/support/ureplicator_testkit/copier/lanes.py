"""The four ways to copy: both deliveries, with and without a handler."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ureplicator_common.model import (
    Delivery,
    HandlerSettings,
    OwnerEpoch,
    Partition,
    RouteSettings,
)
from ureplicator_worker.lifeline.messages import Grant

HANDLER = HandlerSettings(".*", "ureplicator_worker.handlers:identity", "{}")
LANES: Mapping[str, RouteSettings] = {
    f"{delivery.value}-{name}": RouteSettings(delivery=delivery, handlers=handlers)
    for delivery in Delivery
    for name, handlers in (("raw", ()), ("handled", (HANDLER,)))
}


def granting(
    settings: RouteSettings, *, had_position: bool = False
) -> Callable[[Partition, OwnerEpoch], Grant]:
    """Grants of a route with these settings."""

    def grant(partition: Partition, epoch: OwnerEpoch) -> Grant:
        return Grant(epoch, partition.topic, settings=settings, had_position=had_position)

    return grant
