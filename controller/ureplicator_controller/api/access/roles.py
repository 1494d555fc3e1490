"""Roles, declared beside each route.

    @api.post("/rebalance", ...)
    @operator_unless_dry_run
    def rebalance(...): ...

A role belongs to a call, not to a verb: a dry run of a write reads. `check_declared` ends the start of an
application with a view that has no role, so that none is open by mistake.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any, TypeVar

from flask import Flask, Request

F = TypeVar("F", bound=Callable[..., Any])

_MARK = "needs_role"


class Role(IntEnum):
    """Rights of a caller; a higher role may do what a lower one may."""

    NOBODY = 0
    VIEWER = 1
    OPERATOR = 2


def anyone(view: F) -> F:
    """A view without login: health, and what the login itself needs."""
    return _declare(view, lambda _: Role.NOBODY)


def viewer(view: F) -> F:
    """A view that reads."""
    return _declare(view, lambda _: Role.VIEWER)


def operator(view: F) -> F:
    """A view that changes the fleet."""
    return _declare(view, lambda _: Role.OPERATOR)


def operator_unless_dry_run(view: F) -> F:
    """A view that changes the fleet, and reads with `dry_run=true`."""
    return _declare(view, _unless_dry_run)


def role_of(app: Flask, request: Request) -> Role:
    """The role that a request needs. A path that does not exist needs that of a viewer."""
    if request.endpoint is None:
        return Role.VIEWER
    return declared_role(app.view_functions[request.endpoint], request)


def declared_role(view: Callable[..., Any], request: Request) -> Role:
    """The role that a view needs for a request."""
    declared: Callable[[Request], Role] = getattr(view, _MARK)
    return declared(request)


def check_declared(app: Flask) -> None:
    """Assert that each view has a role."""
    missing = [name for name, view in app.view_functions.items() if not hasattr(view, _MARK)]
    assert not missing, f"views without a role: {missing}"


def _unless_dry_run(request: Request) -> Role:
    reads = request.args.getlist("dry_run") == ["true"]
    return Role.VIEWER if reads else Role.OPERATOR


def _declare(view: F, role: Callable[[Request], Role]) -> F:
    setattr(view, _MARK, role)
    return view
