"""Requests and responses of `/tasks`."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from ureplicator_controller.api.http.models.requests import Path
from ureplicator_controller.api.http.models.responses import ResponseModel
from ureplicator_controller.core.reporting.tasks import TaskState


class TaskPath(Path):
    """Id of the request, or the part of it that its client chose."""

    task: str


class ShownTask(ResponseModel):
    task: str = Field(description="id of the request, as in X-Request-Id of its response")
    by: str = Field(description="name in the login of the request; empty: it had none")
    what: str
    state: TaskState = Field(
        description="waiting: the leader has not begun it; refused: the fleet had changed since the plan"
    )
    began: datetime | None = Field(description="first event of it in the history")
    moves: int = Field(description="of partitions: decided ones, and those that a drain still has")
    moved: int = Field(description="that are ONLINE at their new owner, released or replaced")
    outcome: str = Field(description="why it moved nothing; empty: it is carried out")


class TaskList(ResponseModel):
    tasks: list[ShownTask] = Field(description="newest first")


class TaskCancelled(ResponseModel):
    task: str
    cancelled: bool
