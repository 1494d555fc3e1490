"""The one check before each view, static file and document: is the caller known, and does its role do?

A program sends `Authorization: Bearer <token>`; the dashboard has the same token in a cookie that scripts
cannot read and that no other site's page can make a browser send. A token in a URL counts for nothing.

Source: RFC 6750 (Bearer).
"""

from __future__ import annotations

import math
from http import HTTPStatus

from flask import Flask, Response, g, redirect, request

from ureplicator_common.clock import Clock
from ureplicator_common.config.roles import ControllerSettings
from ureplicator_controller.api.access.attempts import Attempts
from ureplicator_controller.api.access.roles import Role, role_of
from ureplicator_controller.api.access.token_files import TokenFiles
from ureplicator_controller.api.access.tokens import Token, digest_of, find_token
from ureplicator_controller.api.http.problems import Problem

COOKIE = "ureplicator_token"
LOGIN = "/login"
_SCHEME = "bearer "
_HINT = "send Authorization: Bearer <token>, or log in at /login"


class Gate:
    """Judges callers by the tokens of `controller.access`. Raises ConfigurationError."""

    def __init__(self, settings: ControllerSettings, *, clock: Clock) -> None:
        access = settings.access
        self.is_closed = access.mode == "tokens"
        files = {Role.VIEWER: access.viewer_tokens_file, Role.OPERATOR: access.operator_tokens_file}
        self._files = TokenFiles(files if self.is_closed else {})
        self._attempts = Attempts()
        self._clock = clock

    def register(self, app: Flask) -> None:
        """Check each request. Register it before what may take time."""

        @app.before_request
        def check() -> Response | None:
            if not self.is_closed:
                return None
            needed = role_of(app, request)
            return self._refusal(needed) if needed > Role.NOBODY else None

    def known(self, presented: str) -> Token:
        """The token that is presented. Raises Problem."""
        address, digest = request.remote_addr or "", digest_of(presented)
        now_s = self._clock.monotonic_s()
        wait_s = self._attempts.refused_for_s(address, digest, now_s=now_s)
        if wait_s > 0:
            raise Problem(
                HTTPStatus.TOO_MANY_REQUESTS,
                "too many logins of this address have failed",
                retry_after_s=math.ceil(wait_s),
            )
        found = find_token(self._files.tokens(), presented, now_s=self._clock.wall_ms() / 1000)
        if found is None:
            self._attempts.failed(address, digest, now_s=now_s)
            raise _unauthorized("the token is not known, or has expired")
        self._attempts.accepted(address, digest)
        return found

    def _refusal(self, needed: Role) -> Response | None:
        presented = _presented()
        if not presented:
            return _login_needed()
        try:
            token = self.known(presented)
        except Problem as problem:
            return _challenged(problem)
        g.caller = token.name
        if token.role < needed:
            raise Problem(
                HTTPStatus.FORBIDDEN,
                f"{token.name} is a {token.role.name.lower()}; this call needs the role"
                f" {needed.name.lower()}",
            )
        return None


def caller() -> str:
    """Name of the token of the present request; "" without login."""
    return str(g.get("caller", ""))


def _presented() -> str:
    header = request.headers.get("Authorization", "")
    if header:
        return header[len(_SCHEME) :].strip() if header.lower().startswith(_SCHEME) else header
    return request.cookies.get(COOKIE, "")


def _login_needed() -> Response:
    if request.path == "/" and request.method == "GET":
        return redirect(LOGIN, HTTPStatus.SEE_OTHER)  # type: ignore[return-value]
    return _challenged(_unauthorized("this call needs a token"))


def _unauthorized(detail: str) -> Problem:
    return Problem(HTTPStatus.UNAUTHORIZED, detail, field="Authorization", hint=_HINT)


def _challenged(problem: Problem) -> Response:
    response = problem.response()
    if problem.status is HTTPStatus.UNAUTHORIZED:
        response.headers["WWW-Authenticate"] = 'Bearer realm="ureplicator"'
    return response
