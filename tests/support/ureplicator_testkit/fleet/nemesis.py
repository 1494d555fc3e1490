"""Two faults at once, drawn at random: what is hit, how, and for how long.

    draw    two kinds, and the target of each; what is needed to hit it is looked up, as the first fault may
            make the second target unreachable
    begin   both, one right after the other
    heal    all that is frozen goes on, every path is open, and what was killed has ended

The same worker may be hit twice. `repeats` tells the writers that were hit: their last records may be there
twice if the route delivers at least once. A frozen target, and a path to it that is cut, hold requests that
arrive when all is healed; the other fault may have replaced their sender by then.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from ureplicator_testkit.fleet.real_fleet import Fleet, pids_of
from ureplicator_testkit.histories.repeats import NO_LOST_WRITER, Lost, late, lost
from ureplicator_testkit.servers.network import BreakableServers, NetworkPaths
from ureplicator_testkit.servers.processes import Process
from ureplicator_testkit.servers.proxy import BOTH, Proxy, Way

ENDED_S = 30
WAYS: tuple[tuple[Way, ...], ...] = (BOTH, (Way.UP,), (Way.DOWN,))
CLUSTERS = ("source", "target")


@dataclass(frozen=True, slots=True)
class DrawnFault:
    """`repeats`: the writer that is hit, and whether it may have requests that arrive late."""

    name: str
    begin: Callable[[], None]
    repeats: Lost = NO_LOST_WRITER


class Nemesis:
    """`faults`: the two that were drawn; `lasts_s`: so long before they are healed."""

    def __init__(
        self, fleet: Fleet, site: BreakableServers, dice: random.Random, *, longest_s: float
    ) -> None:
        self._fleet, self._site, self._dice = fleet, site, dice
        self._ending: list[Process] = []
        kinds: dict[str, Callable[[], DrawnFault]] = {
            "kill a worker": self._kill_worker,
            "kill a copier": self._kill_copier,
            "kill a JVM": self._kill_jvm,
            "kill the leader": self._kill_leader,
            "freeze a worker": self._freeze_worker,
            "freeze the leader": self._freeze_leader,
            "freeze a cluster": self._freeze_cluster,
            "freeze a ZooKeeper server": self._freeze_zookeeper,
            "cut a worker off from a cluster": self._cut_cluster,
            "cut a worker off from ZooKeeper": self._cut_zookeeper,
        }
        self.faults = [kinds[kind]() for kind in dice.sample(sorted(kinds), 2)]
        self.lasts_s = dice.uniform(1, longest_s)
        self._begun_after = 0
        """Number of the last event before."""

    def __str__(self) -> str:
        return f"{' and '.join(fault.name for fault in self.faults)}, {self.lasts_s:.1f} s"

    def repeats(self) -> Lost:
        """Repeats of the writers that were hit, and of those whose session ended because a ZooKeeper
        server was frozen: they copy until their commits are refused."""
        each = [fault.repeats for fault in self.faults]
        hit = frozenset(id for one in each for id in one.workers)
        expired = self._fleet.ended_sessions(self._begun_after) - hit
        return Lost(hit | expired, late=bool(expired) or any(one.late for one in each))

    def begin(self) -> None:
        self._begun_after = self._fleet.last_event()
        for fault in self.faults:
            fault.begin()

    def heal(self) -> None:
        for process in self._fleet.processes.values():
            process.resume()
        self._site.heal()
        for process in self._ending:
            process.wait(ENDED_S)
        self._fleet.heal()

    # --- what is killed ----------------------------------------------------------------------

    def _kill_worker(self) -> DrawnFault:
        id = self._worker()
        return DrawnFault(f"kill {id}", self._fleet.workers[id].kill_tree, lost(id))

    def _kill_copier(self) -> DrawnFault:
        id = self._worker()
        pid = self._dice.choice([slot["pid"] for slot in self._fleet.status(id)["slots"]])
        return DrawnFault(f"kill the copier of {id}", partial(kill, pid), lost(id))

    def _kill_jvm(self) -> DrawnFault:
        """The worker ends by itself."""
        id = self._worker()
        (pid,) = pids_of(self._fleet.workers[id], "java")
        self._ending.append(self._fleet.workers[id])
        return DrawnFault(f"kill the JVM of {id}", partial(kill, pid), lost(id))

    def _kill_leader(self) -> DrawnFault:
        id = self._fleet.leader()
        return DrawnFault(f"kill the leader {id}", self._fleet.controllers[id].kill_tree)

    # --- what is frozen ----------------------------------------------------------------------

    def _freeze_worker(self) -> DrawnFault:
        id = self._worker()
        return DrawnFault(f"freeze {id}", self._fleet.workers[id].pause, late(id))

    def _freeze_leader(self) -> DrawnFault:
        id = self._fleet.leader()
        return DrawnFault(f"freeze the leader {id}", self._fleet.controllers[id].pause)

    def _freeze_cluster(self) -> DrawnFault:
        end = self._dice.choice(CLUSTERS)
        repeats = Lost(late=end == "target")
        return DrawnFault(f"freeze the {end}", self._site.cluster(end).pause, repeats)

    def _freeze_zookeeper(self) -> DrawnFault:
        member = self._dice.choice(self._site.zookeeper.members)
        return DrawnFault("freeze a ZooKeeper server", member.pause)

    # --- what is cut off ---------------------------------------------------------------------

    def _cut_cluster(self) -> DrawnFault:
        id, end, ways = self._worker(), self._dice.choice(CLUSTERS), self._dice.choice(WAYS)
        proxy = proxies(self._fleet.links[id])[end]
        name = f"cut {id} off from the {end} ({' and '.join(ways)})"
        repeats = Lost(frozenset({id}), late=end == "target" and Way.UP in ways)
        return DrawnFault(name, partial(proxy.stall, *ways), repeats)

    def _cut_zookeeper(self) -> DrawnFault:
        id, ways = self._worker(), self._dice.choice(WAYS)
        name = f"cut {id} off from ZooKeeper ({' and '.join(ways)})"
        return DrawnFault(name, partial(self._fleet.links[id].stall_zookeeper, *ways), late(id))

    def _worker(self) -> str:
        return self._dice.choice(sorted(self._fleet.workers))


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):  # the other fault was faster
        os.kill(pid, signal.SIGKILL)


def proxies(links: NetworkPaths) -> dict[str, Proxy]:
    return {"source": links.source, "target": links.target}
