"""Switches of operators that stop or request moves while the fleet runs.

    switch               lost, joined, uneven load,   new partition,   drained,
                         no progress, no capacity     resumed          blacklisted
    (default)            after the delays             at once          at once
    auto-balancing off   nothing                      at once          at once
    frozen               nothing                      at once          at once

Both switches keep every partition that has an owner with that owner. They differ where an owner was lost
before it was assigned the partition. With auto-balancing off (uReplicator's switch) such a partition
still goes to another worker. Frozen means that no partition changes its owner unless operators
requested that very change.

A *rebalance* is requested by writing a request id. It is due until the leader has written that it is
done, so neither a lost response nor a failover loses or repeats it. It is an explicit request: done once,
at once, without delays, and also while the fleet is frozen. It may name the plan that operators were shown
(`owner_changes.plan_id`): then it is that plan, or none.

While too many workers are lost, the plan is made as if the fleet were frozen (`state.mass_loss`), also that
of a rebalance, unless operators confirm the loss.

A live worker that does not release a partition that operators moved away is evicted in any case.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace

from ureplicator_common.znode_contents import Switches
from ureplicator_controller.core.planning.steps import WriteSwitches
from ureplicator_controller.core.state.mass_loss import lost_workers
from ureplicator_controller.core.state.snapshot import Snapshot

PLAN_HAS_CHANGED = "the fleet has changed since the plan was shown: it would move other partitions"


def may_move(switches: Switches, is_leaving: bool) -> bool:
    """True if a partition may change its owner. `is_leaving`: operators drain its worker."""
    return is_leaving or (switches.auto_balancing and not switches.frozen)


def is_rebalance_due(snapshot: Snapshot) -> bool:
    """True if a rebalance was requested and is not done yet."""
    return snapshot.switches.rebalance_requested != snapshot.switches.rebalance_done


def without_delays(snapshot: Snapshot) -> Snapshot:
    """Snapshot for a rebalance: delays have passed, no switch is off, moves are not limited."""
    return replace(
        snapshot,
        delays=replace(snapshot.delays, rebalance_s=0.0, join_s=0.0),
        load_review_at_s=0.0,
        limits=replace(snapshot.limits, moves=sys.maxsize),
        switches=replace(snapshot.switches, auto_balancing=True, frozen=False),
    )


def end_rebalance(snapshot: Snapshot, outcome: str = "") -> Iterator[WriteSwitches]:
    """Step that ends a rebalance; none for a dry run, which has no stored request.

    `outcome`: why it moved nothing.
    """
    if snapshot.switches_version is not None:
        done = replace(
            snapshot.switches,
            rebalance_done=snapshot.switches.rebalance_requested,
            rebalance_plan="",
            rebalance_outcome=outcome,
        )
        yield WriteSwitches(done, snapshot.switches_version)


def forget_confirmed(snapshot: Snapshot) -> Iterator[WriteSwitches]:
    """Step that ends the confirmed loss of workers that are back, or own nothing more.

    A rebalance that is due writes the same node, and comes first.
    """
    confirmed = snapshot.switches.confirmed_lost
    if not confirmed or snapshot.switches_version is None or is_rebalance_due(snapshot):
        return
    lasting = confirmed & lost_workers(snapshot)
    if lasting != confirmed:
        after = replace(snapshot.switches, confirmed_lost=lasting)
        yield WriteSwitches(after, snapshot.switches_version)
