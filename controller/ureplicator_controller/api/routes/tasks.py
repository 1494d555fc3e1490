"""`/tasks`: requests that take a while, how far they are, and their end before that.

The id of a task is that of its request, which each response to a write has as `X-Request-Id`.
"""

from __future__ import annotations

from itertools import islice

from flask_openapi3 import APIBlueprint

from ureplicator_controller.api.access.roles import operator, viewer
from ureplicator_controller.api.http.models.requests import IfMatchHeader, Query
from ureplicator_controller.api.http.models.responses import JsonResult, responses, write_responses
from ureplicator_controller.api.http.models.tasks import (
    ShownTask,
    TaskCancelled,
    TaskList,
    TaskPath,
)
from ureplicator_controller.api.http.openapi import group
from ureplicator_controller.api.http.problems import conflict, not_found
from ureplicator_controller.api.http.request_ids import is_of
from ureplicator_controller.api.services.fleet_cache import FleetCache
from ureplicator_controller.api.services.switches import SwitchService
from ureplicator_controller.api.services.workers import WorkerService
from ureplicator_controller.core.reporting.authorship import by_of, id_of
from ureplicator_controller.core.reporting.shown_events import shown_time
from ureplicator_controller.core.reporting.tasks import Task, tasks

MAX_TASKS = 100


def blueprint(
    *, fleet: FleetCache, workers: WorkerService, switches: SwitchService
) -> APIBlueprint:
    api = group("tasks", __name__)

    @api.get("/tasks", responses=responses(TaskList))
    @viewer
    def list_tasks(query: Query) -> JsonResult:
        """The last hundred tasks that are remembered, newest first."""
        found = islice(tasks(fleet.current().snapshot), MAX_TASKS)
        return {"tasks": [_shown(task) for task in found]}

    @api.get("/tasks/<path:task>", responses=responses(ShownTask, 404))
    @viewer
    def show_task(path: TaskPath, query: Query) -> JsonResult:
        """One task: moved so far, of all its moves."""
        return _shown(_found(fleet, path.task))

    @api.delete("/tasks/<path:task>", responses=write_responses(TaskCancelled, 404, 409))
    @operator
    def cancel_task(path: TaskPath, query: Query, header: IfMatchHeader) -> JsonResult:
        """End a task before it is done. What has moved stays where it is."""
        task = _found(fleet, path.task)
        if not task.is_open:
            raise conflict(f"task {id_of(task.request)} is {task.state}", field="task")
        if task.drained is not None:
            workers.undrain(task.drained, header.condition)
        elif not switches.cancel_rebalance(task.request, header.condition):
            raise conflict(
                f"all moves of task {id_of(task.request)} are decided",
                field="task",
                hint="each of them takes well under a second, unless a worker does not respond",
            )
        return {"task": id_of(task.request), "cancelled": True}

    return api


def _found(fleet: FleetCache, id: str) -> Task:
    """Raises Problem."""
    for task in tasks(fleet.current().snapshot):
        if is_of(task.request, id):
            return task
    raise not_found(
        f"no task {id} is remembered",
        field="task",
        hint="only requests that move partitions are tasks; the history has the last two thousand events",
    )


def _shown(task: Task) -> dict[str, object]:
    return {
        "task": id_of(task.request),
        "by": by_of(task.request),
        "what": task.what,
        "state": task.state,
        "began": shown_time(task.began_ms) if task.began_ms else None,
        "moves": task.moves,
        "moved": task.moved,
        "outcome": task.outcome,
    }
