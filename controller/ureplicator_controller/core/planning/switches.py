"""What operators switch while the fleet runs, as the plan understands it.

    switch               lost, joined, uneven, stuck   new partition, resumed   drained, blacklisted
    (as it starts)       after the delays              at once                  at once
    auto-balancing off   nothing                       at once                  at once
    frozen               nothing                       at once                  at once

Both keep every partition that has an owner with it. The difference is one of will. Auto-balancing
off (uReplicator's switch) means that the fleet shall not judge who is lost: a partition that its
owner was never given, because the owner was lost before, still goes to another one. Frozen means
that nothing at all may change hands unless somebody asked for that very thing.

A *rebalance* is asked for by writing a request id; it is due until the leader has written that it
did it, so neither a lost answer nor a failover loses or doubles it. It is an operator's word: done
once, at once, without delays, and also while the fleet is frozen.

A live worker that does not let go of what an operator took from it is evicted in any case.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace

from ureplicator_common.model import Switches
from ureplicator_controller.core.planning.steps import MarkRebalanced
from ureplicator_controller.core.state.snapshot import Snapshot


def may_move(switches: Switches, leaving: bool) -> bool:
    """Whether a partition may change its owner for the fleet's own reasons, or an operator's."""
    return leaving or (switches.auto_balancing and not switches.frozen)


def is_rebalance_due(snapshot: Snapshot) -> bool:
    """Whether a rebalance is due."""
    return snapshot.switches.rebalance_asked != snapshot.switches.rebalance_done


def without_delays(snapshot: Snapshot) -> Snapshot:
    """The same fleet, as if every delay had passed, nothing were switched off, and no move too
    many."""
    return replace(
        snapshot,
        delays=replace(snapshot.delays, rebalance_s=0.0, join_s=0.0),
        load_review_at_s=0.0,
        limits=replace(snapshot.limits, moves=sys.maxsize),
        switches=replace(snapshot.switches, auto_balancing=True, frozen=False),
    )


def mark_rebalance_done(snapshot: Snapshot) -> Iterator[MarkRebalanced]:
    """Nothing where nobody wrote: a dry run asks without writing."""
    if snapshot.switches_version is not None:
        done = replace(snapshot.switches, rebalance_done=snapshot.switches.rebalance_asked)
        yield MarkRebalanced(done, snapshot.switches_version)
