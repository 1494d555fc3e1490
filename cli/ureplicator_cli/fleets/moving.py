"""Move of a topic from one fleet to another, with its positions.

    both fleets have it?        refused, unless it is paused at the taker: then a former run goes on
    1 taker   import, paused    as the giver exports it; its claim on the target topic does not count
    2 taker   compare ids       of source and target topic: the fleets must mean the same clusters
    3 giver   pause             until no worker has any of its partitions
    4 giver   set positions     to what they are: that fences every process that could still commit them
    5 taker   set positions     to the same offsets
    6 giver   delete            its positions stay there
    7 taker   resume            unless it was paused before

Each step may be the last one of a run, and a second run repeats what is done already. No record is copied by
both: the taker resumes when the giver has released and fenced all partitions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from ureplicator_cli.rest_client import RestClient, RestFailure, quoted
from ureplicator_common.printable import listed

T = TypeVar("T")

POLL_S = 0.3
NOT_FOUND = 404
MAX_FENCED = 3
"""Attempts: a process that was fenced by one of them commits no more."""
_IDS = ("sourceTopicId", "targetTopicId")


@dataclass(frozen=True, slots=True)
class FleetEnd:
    """One of the two fleets, by a controller's REST, and the topic's route there."""

    client: RestClient
    route: Mapping[str, str]
    """The parameters `src` and `dst`; without them, the fleet's only route."""

    def call(
        self, method: str, path: str, *, body: Mapping[str, Any] | None = None, **query: str
    ) -> dict[str, Any]:
        """Raises RestFailure."""
        return self.client.call(method, path, query={**self.route, **query}, body=body)


class TopicMove:
    """One move. Raises RestFailure at any step. `tell`: takes a line for each step."""

    def __init__(
        self,
        topic: str,
        *,
        giver: FleetEnd,
        taker: FleetEnd,
        tell: Callable[[str], None],
        timeout_s: float,
    ) -> None:
        self._topic = topic
        self._giver = giver
        self._taker = taker
        self._tell = tell
        self._timeout_s = timeout_s
        self._path = f"/topics/{quoted(topic)}"
        self._positions_path = f"/positions/{quoted(topic)}"

    def run(self) -> None:
        """Move the topic, or complete a move."""
        giver, given = self._fleet_and_entry(self._giver)
        taker, there = self._fleet_and_entry(self._taker)
        self._require_possible(giver, taker, given, there)
        assert given is not None
        stays_paused = there is None and given["state"] == "paused"
        self._import(giver, given)
        self._tell(f"{taker}: imported, paused")
        self._compare_ids(giver, taker)
        positions = self._released_positions()
        self._tell(f"{giver}: paused and released, at {_listed(positions)}")
        self._set(self._taker, positions)
        self._tell(f"{taker}: begins there")
        self._giver.call("DELETE", self._path)
        self._until(lambda: self._shown(self._giver) is None, f"{giver} has not deleted it")
        self._tell(f"{giver}: deleted")
        if not stays_paused:
            self._taker.call("POST", f"{self._path}/resume")
        self._tell(f"{taker}: {'stays paused' if stays_paused else 'copies it'}")

    def _fleet_and_entry(self, end: FleetEnd) -> tuple[str, Mapping[str, Any] | None]:
        """The fleet's name, and the topic as it exports it."""
        shown = self._shown(end)
        exported = end.client.call("GET", "/export")
        topics = exported["topics"].get(shown["route"], {}) if shown else {}
        return str(exported["fleet"]), topics.get(self._topic)

    def _require_possible(
        self,
        giver: str,
        taker: str,
        given: Mapping[str, Any] | None,
        there: Mapping[str, Any] | None,
    ) -> None:
        if giver == taker:
            raise RestFailure(f"both addresses are of the same fleet, {giver}")
        if given is None:
            if there is None:
                raise RestFailure(f"{self._topic} is copied by neither {giver} nor {taker}")
            resume = "; resume it there" if there["state"] == "paused" else ""
            raise RestFailure(
                f"{self._topic} is with {taker} already, {there['state']}, and not with {giver}{resume}"
            )
        if given["stopped"]:
            raise RestFailure(
                f"{self._topic} was stopped at {giver}: {given['stopped']}; decide first how it goes on"
            )
        if there is not None and there["state"] != "paused":
            raise RestFailure(
                f"{giver} and {taker} both copy {self._topic}: delete it at one of them"
            )

    def _import(self, giver: str, given: Mapping[str, Any]) -> None:
        """Import the topic at the taker, without ids: the taker has those that it sees."""
        entry = {name: value for name, value in given.items() if name not in (*_IDS, "stopped")}
        self._taker.call(
            "PUT",
            f"/import{self._path}",
            body={**entry, "state": "paused"},
            listed="false",
            from_fleet=giver,
        )

    def _compare_ids(self, giver: str, taker: str) -> None:
        """Leaders record them within some seconds."""
        given, there = self._ids(self._giver, giver), self._ids(self._taker, taker)
        for what, ours, theirs in zip(("source", "target"), given, there, strict=True):
            if ours != theirs:
                self._taker.call("DELETE", self._path)
                raise RestFailure(
                    f"the fleets do not mean the same clusters: the {what} topic has the id {ours} at"
                    f" {giver}, and {theirs} at {taker}"
                )

    def _ids(self, end: FleetEnd, fleet: str) -> tuple[str, ...]:
        """Ids of source and target topic."""

        def found() -> tuple[str, ...] | None:
            _, entry = self._fleet_and_entry(end)
            ids = tuple(entry[name] for name in _IDS) if entry else ("",)
            return ids if all(ids) else None

        return self._until(found, f"{fleet} does not know the ids of its topics")

    def _released_positions(self) -> Mapping[int, int]:
        """Pause at the giver; positions that nobody can commit any more."""
        self._giver.call("POST", f"{self._path}/pause")
        self._until(self._is_released, "workers still have partitions of it")
        positions = self._positions(self._giver)
        for _ in range(MAX_FENCED):
            before = self._set(self._giver, positions)
            if before == positions:
                return positions
            positions = before
        raise RestFailure(f"positions of {self._topic} still change: another process commits them")

    def _is_released(self) -> bool:
        shown = self._giver.call("GET", self._positions_path)["partitions"]
        return not any(row["heldBy"] for row in shown)

    def _positions(self, end: FleetEnd) -> dict[int, int]:
        """Positions of the partitions that have one. A figure that cannot be read is a failure."""
        shown = end.call("GET", self._positions_path)["partitions"]
        for row in shown:
            if row["logEnd"] is None:
                raise RestFailure(f"{self._topic}/{row['partition']}: {row['reason']}")
        return {row["partition"]: row["position"] for row in shown if row["position"] is not None}

    def _set(self, end: FleetEnd, positions: Mapping[int, int]) -> dict[int, int]:
        """Set the positions; return those that were there until then."""
        if not positions:
            return {}
        requests = {
            number: end.call(
                "POST", self._positions_path, body={"partition": number, "offset": offset}
            )["request"]
            for number, offset in positions.items()
        }
        changes = self._until(
            lambda: self._changes(end, requests), "positions are not set by the leader"
        )
        return {
            number: change["replaced"] if change["replaced"] is not None else positions[number]
            for number, change in changes.items()
        }

    def _changes(
        self, end: FleetEnd, requests: Mapping[int, str]
    ) -> Mapping[int, Mapping[str, Any]] | None:
        """Outcomes of all requests; None while one of them is pending."""
        shown = end.call("GET", self._positions_path)["partitions"]
        changes = {row["partition"]: row["change"] for row in shown if row["partition"] in requests}
        if any(
            change is None
            or change["outcome"] == "pending"
            or change["request"] != requests[number]
            for number, change in changes.items()
        ):
            return None
        for number, change in changes.items():
            if change["outcome"] != "done":
                raise RestFailure(f"{self._topic}/{number}: {change['outcome']}")
        return changes

    def _shown(self, end: FleetEnd) -> Mapping[str, Any] | None:
        """The topic as the fleet shows it; None if it does not have it."""
        try:
            return end.call("GET", self._path)
        except RestFailure as error:
            if error.status == NOT_FOUND:
                return None
            raise

    def _until(self, found: Callable[[], T | None], failure: str) -> T:
        """Poll until there is a true value. Raises RestFailure after the time limit."""
        end_s = time.monotonic() + self._timeout_s
        while True:
            value = found()
            if value:
                return value
            if time.monotonic() > end_s:
                raise RestFailure(f"not within {self._timeout_s:.0f} s: {failure}")
            time.sleep(POLL_S)


def _listed(positions: Mapping[int, int]) -> str:
    """Positions in one short line."""
    shown = [f"{number}: {offset}" for number, offset in sorted(positions.items())]
    return listed(shown, 5) if shown else "no position"
