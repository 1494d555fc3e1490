"""Shares of byte limits for the slots of live workers, as the leader publishes them. Pure.

    limits (switches) + loads (workers, every 10 s) --> `shares/<worker>`: slot -> what is limited -> bytes/s

A limit of a route or topic is divided among all slots of all live workers, one of a worker among its own
slots. Every slot has a share of every limit that may concern it, before it has a partition: shares are
written before assignments, and a worker reads them after its assignment. So no partition is ever copied
without its limits.

What a worker that is cut off from ZooKeeper or gone was given last is not taken from it: it may go on with
that share until its session ends, while the others share the whole limit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping

from ureplicator_common.model import Limited, LimitKind, Route, TopicKey, WorkerId
from ureplicator_controller.core.balance.fair_shares import divide, is_close
from ureplicator_controller.core.planning.steps import WriteShares
from ureplicator_controller.core.state.snapshot import Snapshot

DIVISION_INTERVAL_S = 10.0
"""Time between two divisions: as often as workers write their loads."""

Slot = tuple[WorkerId, int]


def share_steps(snapshot: Snapshot, reasons: Counter[str]) -> Iterator[WriteShares]:
    """Write the shares of workers whose shares change."""
    if not snapshot.are_switches_readable:
        return
    wanted = wanted_shares(snapshot)
    for worker, slots in sorted(wanted.items()):
        stored = snapshot.shares.get(worker)
        if (stored.value if stored else {}) != slots:
            reasons["byte limits divided"] += 1
            yield WriteShares(worker, slots, stored.version if stored else None)


def next_division_s(snapshot: Snapshot, now_s: float) -> float | None:
    """Time at which the limits are to be divided again, by later loads; None without limits."""
    divided = snapshot.switches.limits and snapshot.sessions
    return now_s + DIVISION_INTERVAL_S if divided else None


def wanted_shares(snapshot: Snapshot) -> dict[WorkerId, dict[int, dict[Limited, int]]]:
    """Shares of the live workers."""
    slots = _live_slots(snapshot)
    used = used_by_slot(snapshot)
    wanted: dict[WorkerId, dict[int, dict[Limited, int]]] = {worker: {} for worker, _ in slots}
    for limited, limit in sorted(snapshot.switches.limits.items()):
        claimants = {slot for slot in slots if _concerns(limited, slot)}
        found = {slot: rate for slot, rate in used.get(limited, {}).items() if slot in claimants}
        shares = divide(limit, found, claimants)
        former = _former(snapshot, limited, claimants)
        for (worker, number), share in (
            former if is_close(former, shares, limit) else shares
        ).items():
            wanted[worker].setdefault(number, {})[limited] = share
    return wanted


def used_by_slot(snapshot: Snapshot) -> Mapping[Limited, Mapping[Slot, float]]:
    """Measured bytes per second of what is limited, by slot; slots that hold nothing of it are left out."""
    limits = snapshot.switches.limits
    used: dict[Limited, dict[Slot, float]] = {limited: {} for limited in limits}
    of_kind: dict[LimitKind, dict[str, dict[Slot, float]]] = {kind: {} for kind in LimitKind}
    for limited, by_slot in used.items():
        of_kind[limited.kind][limited.name] = by_slot
    routes = {Route.parse(name): rates for name, rates in of_kind[LimitKind.ROUTE].items()}
    topics = {TopicKey.parse(name): rates for name, rates in of_kind[LimitKind.TOPIC].items()}
    for worker in snapshot.loads if limits else ():
        of_worker = of_kind[LimitKind.WORKER].get(worker)
        for partition, load in snapshot.loads[worker].items():
            of_topic = topics.get(partition.key) if topics else None
            for rates in (of_worker, routes.get(partition.route), of_topic):
                if rates is not None:
                    slot = (worker, load.slot)
                    rates[slot] = rates.get(slot, 0.0) + load.bytes_per_s
    return used


def _live_slots(snapshot: Snapshot) -> list[Slot]:
    return [
        (worker, number)
        for worker in sorted(snapshot.sessions)
        if worker in snapshot.live
        for number in range(snapshot.live[worker].value.slots)
    ]


def _concerns(limited: Limited, slot: Slot) -> bool:
    return limited.kind is not LimitKind.WORKER or limited.name == slot[0]


def _former(snapshot: Snapshot, limited: Limited, slots: Collection[Slot]) -> dict[Slot, int]:
    """Shares that are published for these slots."""
    former: dict[Slot, int] = {}
    for worker, number in slots:
        stored = snapshot.shares.get(worker)
        share = stored.value.get(number, {}).get(limited) if stored else None
        if share is not None:
            former[worker, number] = share
    return former
