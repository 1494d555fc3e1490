"""`/login`: a form that puts a token into a cookie for the dashboard, and `/logout`, which removes it.

The cookie holds the token itself, so that it is good at each controller, and ends with its token.

A proxy may serve REST below a path of its own, which is not known here. References are relative, and the
cookie names no path: browsers then send it to the folder of `/login` and what lies in it, and to nothing else
of that host.

Source: RFC 6265, section 5.1.4 (default path); RFC 9110, section 10.2.2 (a Location may be relative).
"""

from __future__ import annotations

from http import HTTPStatus

from flask import Blueprint, Response, make_response, redirect, request

from ureplicator_controller.api.access.gate import COOKIE, LOGIN, Gate
from ureplicator_controller.api.access.roles import Role, anyone
from ureplicator_controller.api.http.problems import Problem

_POLICY = (
    "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none';"
    " frame-ancestors 'none'"
)
_PAGE = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>uReplicator: log in</title></head>
<body>
<h1>uReplicator</h1>
<p role="alert">{message}</p>
<form method="post" action="login">
<label>Token <input type="password" name="token" autocomplete="off" required autofocus></label>
<button>Log in</button>
</form>
</body>
</html>
"""


def blueprint(gate: Gate) -> Blueprint:
    pages = Blueprint("login", __name__)

    @pages.get(LOGIN)
    @anyone
    def form() -> Response:
        return _page("")

    @pages.post(LOGIN)
    @anyone
    def log_in() -> Response:
        presented = request.form.get("token", "").strip()
        if gate.is_closed:
            try:
                gate.admit(presented, Role.VIEWER)
            except Problem as problem:
                return _page(problem.detail, problem.status)
        response = make_response(redirect("./", HTTPStatus.SEE_OTHER))
        response.set_cookie(
            COOKIE, presented, httponly=True, samesite="Strict", secure=request.is_secure, path=None
        )
        return response

    @pages.post("/logout")
    @anyone
    def log_out() -> Response:
        response = make_response(redirect(LOGIN.removeprefix("/"), HTTPStatus.SEE_OTHER))
        response.delete_cookie(
            COOKIE, path=None, httponly=True, samesite="Strict", secure=request.is_secure
        )
        return response

    return pages


def _page(message: str, status: HTTPStatus = HTTPStatus.OK) -> Response:
    response = make_response(_PAGE.format(message=message), status)
    response.headers["Content-Security-Policy"] = _POLICY
    return response
