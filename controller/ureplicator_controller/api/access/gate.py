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
from ureplicator_controller.api.access.oidc.bearer import Bearers, looks_signed
from ureplicator_controller.api.access.oidc.errors import ProviderUnavailable, TokenRefused
from ureplicator_controller.api.access.roles import Role, role_of
from ureplicator_controller.api.access.token_files import TokenFiles
from ureplicator_controller.api.access.tokens import Token, digest_of, find_token
from ureplicator_controller.api.http.problems import Problem, unavailable

COOKIE = "ureplicator_token"
LOGIN = "/login"
PROVIDER_RETRY_S = 10
PAGES = (
    "/",
    "/list",
    *(f"/show/{kind}" for kind in ("topic", "worker", "groups", "cutovers", "cutover")),
)
"""Pages for people: without a token they lead to the login."""
_SCHEME = "bearer "
_HINT = "send Authorization: Bearer <token>, or log in at /login"


class Gate:
    """Judges callers by `controller.access`: tokens of files and of an identity provider. Raises
    ConfigurationError."""

    def __init__(self, settings: ControllerSettings, *, clock: Clock) -> None:
        access = settings.access
        self.is_closed = access.mode == "tokens"
        files = {Role.VIEWER: access.viewer_tokens_file, Role.OPERATOR: access.operator_tokens_file}
        self._files = TokenFiles(files if self.is_closed else {})
        self._bearers = Bearers(access.oidc, clock=clock) if access.oidc.enabled else None
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

    def admit(self, presented: str, needed: Role) -> None:
        """Remember the caller, who must have at least this role. Raises Problem."""
        token = self._known(presented)
        g.caller = token.name
        if token.role < needed:
            held = f"is a {token.role.name.lower()}" if token.role else "has no role here"
            detail = f"{token.name} {held}; this call needs the role {needed.name.lower()}"
            raise Problem(HTTPStatus.FORBIDDEN, detail)

    def _known(self, presented: str) -> Token:
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
        try:
            found = self._judged(presented)
        except TokenRefused as error:
            self._attempts.failed(address, digest, now_s=now_s)
            raise _unauthorized(str(error)) from None
        except ProviderUnavailable as error:
            raise unavailable(str(error), retry_after_s=PROVIDER_RETRY_S) from None
        self._attempts.accepted(address, digest)
        return found

    def _judged(self, presented: str) -> Token:
        now_s = self._clock.wall_ms() / 1000
        found = find_token(self._files.tokens(), presented, now_s=now_s)
        if found is not None:
            return found
        if self._bearers is not None and looks_signed(presented):
            return self._bearers.token(presented)
        raise TokenRefused("the token is not known, or has expired")

    def _refusal(self, needed: Role) -> Response | None:
        presented = _presented()
        if not presented:
            return _login_needed()
        try:
            self.admit(presented, needed)
        except Problem as problem:
            return _challenged(problem)
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
    if request.path in PAGES and request.method == "GET":
        login = "../" * (request.path.count("/") - 1) + LOGIN.removeprefix("/")
        return redirect(login, HTTPStatus.SEE_OTHER)  # type: ignore[return-value]
    return _challenged(_unauthorized("this call needs a token"))


def _unauthorized(detail: str) -> Problem:
    return Problem(HTTPStatus.UNAUTHORIZED, detail, field="Authorization", hint=_HINT)


def _challenged(problem: Problem) -> Response:
    response = problem.response()
    if problem.status is HTTPStatus.UNAUTHORIZED:
        response.headers["WWW-Authenticate"] = 'Bearer realm="ureplicator"'
    return response
