"""The document of `/overview`, drawn from one state of the fleet and one report of the lag."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ureplicator_common.audits.standing import Standing
from ureplicator_common.config.settings import Settings
from ureplicator_common.model import Route, TopicKey, WorkerId
from ureplicator_controller.api.lag_collection.collector import LagReport
from ureplicator_controller.api.services.fleet_cache import FleetState
from ureplicator_controller.core.reporting.lag import LagSummary, PartitionLag, combined
from ureplicator_controller.core.reporting.route_summary import (
    RouteCondition,
    summarise_route,
)
from ureplicator_controller.core.reporting.tiles import Tile, TileState, counts_by_state, tiles
from ureplicator_controller.core.state.mass_loss import mass_loss
from ureplicator_controller.core.state.snapshot import Snapshot
from ureplicator_controller.core.state.topic_tallies import Tallies

_STATES = tuple(TileState)
_NO_LAG: Mapping[int, PartitionLag] = {}


class _Texts:
    """Texts by index; "" is the first. Hundreds of partitions wait for the same thing."""

    def __init__(self) -> None:
        self._indices = {"": 0}

    def index(self, text: str) -> int:
        return self._indices.setdefault(text, len(self._indices))

    def listed(self) -> list[str]:
        return list(self._indices)


def document(
    settings: Settings,
    fleet_state: FleetState,
    tallies: Tallies,
    report: LagReport | None,
    standings: Mapping[TopicKey, Standing],
) -> dict[str, Any]:
    """The response without the age of the lag. `tallies`: of the state."""
    snapshot = fleet_state.snapshot
    found = tiles(snapshot, fleet_state.view, tallies)
    workers = sorted({*snapshot.live, *snapshot.known, *(t.worker for t in found if t.worker)})
    topics = list(dict.fromkeys([*sorted(snapshot.topics), *(t.partition.key for t in found)]))
    lags = report.topics if report else {}
    summaries = report.summaries if report else {}
    texts = _Texts()
    columns = _columns(found, workers, topics, lags, texts)
    configured = [config.route for config in settings.routes]
    routes = dict.fromkeys([*configured, *sorted({key.route for key in topics}, key=str)])
    return {
        "leader": fleet_state.leader.id if fleet_state.leader else None,
        "summaries": [
            _route_json(
                route,
                fleet_state,
                [t for t in found if t.partition.route == route],
                [lag for key, lag in summaries.items() if key.route == route],
                standings,
            )
            for route in routes
        ],
        "states": list(_STATES),
        "workers": [_worker_json(snapshot, worker) for worker in workers],
        "topics": [{"route": str(key.route), "topic": key.topic} for key in topics],
        "texts": texts.listed(),
        "tiles": columns,
    }


def _columns(
    found: Sequence[Tile],
    workers: Sequence[WorkerId],
    topics: Sequence[TopicKey],
    lags: Mapping[TopicKey, Mapping[int, PartitionLag]],
    texts: _Texts,
) -> dict[str, list[Any]]:
    of_worker = {worker: index for index, worker in enumerate(workers)}
    of_topic = {key: index for index, key in enumerate(topics)}
    of_state = {state: index for index, state in enumerate(_STATES)}
    keys = [tile.partition.key for tile in found]
    return {
        "topic": [of_topic[key] for key in keys],
        "partition": [tile.partition.number for tile in found],
        "state": [of_state[tile.state] for tile in found],
        "worker": [of_worker[tile.worker] if tile.worker else -1 for tile in found],
        "reason": [texts.index(tile.reason) for tile in found],
        "since": [tile.since_ms for tile in found],
        "actual": [texts.index(_actual(tile)) for tile in found],
        "lagSeconds": [
            _lag_s(lags.get(key, _NO_LAG), tile.partition.number)
            for key, tile in zip(keys, found, strict=True)
        ],
    }


def _actual(tile: Tile) -> str:
    return ", ".join(f"{worker} {state}" for worker, state in (tile.actual or {}).items())


def _lag_s(lags: Mapping[int, PartitionLag], number: int) -> float | None:
    lag = lags.get(number)
    return None if lag is None or lag.lag_s is None else round(lag.lag_s, 1)


def _worker_json(snapshot: Snapshot, worker: WorkerId) -> dict[str, Any]:
    known = snapshot.known.get(worker)
    drained = known is not None and (known.value.draining or known.value.blacklisted)
    return {"worker": worker, "live": worker in snapshot.sessions, "drained": drained}


def _route_json(
    route: Route,
    fleet_state: FleetState,
    found: Sequence[Tile],
    lags: Sequence[LagSummary],
    standings: Mapping[TopicKey, Standing],
) -> dict[str, Any]:
    snapshot = fleet_state.snapshot
    lag = combined(lags) if lags else None
    states, loss = counts_by_state(found), mass_loss(snapshot)
    summary = summarise_route(
        RouteCondition(
            route=route,
            states=states,
            reasons={tile.state: tile.reason for tile in reversed(found)},
            lag=lag,
            verified_ms=_verified_ms(standings[key] for key in standings if key.route == route),
            workers=len(snapshot.sessions),
            has_leader=fleet_state.leader is not None,
            mass_loss=str(loss) if loss else "",
            is_paused=route in snapshot.switches.paused_routes,
            is_frozen=snapshot.switches.frozen,
        )
    )
    return {
        "route": str(route),
        "sentence": summary.sentence,
        "nextSteps": [
            {"text": step.text, "method": step.method, "path": step.path}
            for step in summary.next_steps
        ],
        "states": dict(states),
        "lagRecords": lag.lag_records if lag else None,
        "lagSeconds": lag.lag_s if lag else None,
        "retentionSeconds": lag.retention_s if lag else None,
        "heldRecords": lag.held_records if lag else None,
        "heldSeconds": lag.held_s if lag else None,
    }


def _verified_ms(standings: Iterable[Standing]) -> int | None:
    """Time to which all topics are verified; None if one is not."""
    times = [standing.verified_ms for standing in standings]
    return min((t for t in times if t is not None), default=None) if None not in times else None
