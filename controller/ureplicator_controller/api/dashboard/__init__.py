"""`/`: the dashboard, one page that shows ideal state and external view, drawn from the JSON API.

It keeps no state and uses nothing but the public calls; no asset is loaded from outside. `/show/topic`,
`/show/worker`, `/show/groups`, `/show/cutovers` and `/show/cutover` are the pages of one topic, one worker,
the consumer groups, all cutovers and one. `/list` is the form without scripts, drawn here from the same
document as `/overview`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

from flask import Blueprint, Response, abort, make_response, render_template, request

from ureplicator_common._version import __version__
from ureplicator_common.config.settings import Settings
from ureplicator_common.model import EventKind
from ureplicator_common.pages.policy import PAGE_POLICY
from ureplicator_controller.api.access.gate import PAGES
from ureplicator_controller.api.access.roles import viewer
from ureplicator_controller.api.dashboard.rows import listed

_LIST_POLICY = (
    "default-src 'none'; style-src 'self'; img-src data:;"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def blueprint(
    *, settings: Settings, id: str, overview: Callable[[], Mapping[str, Any]]
) -> Blueprint:
    """`overview` returns the document of `/overview`; it may raise Unavailable."""
    page = Blueprint(
        "dashboard",
        __name__,
        template_folder=".",
        static_folder="static",
        static_url_path="/dashboard",
    )
    routes = [{"src": config.source, "dst": config.target} for config in settings.routes]

    def rendered(template: str, policy: str, **shown: Any) -> Response:
        text = render_template(template, fleet=settings.fleet, id=id, version=__version__, **shown)
        response = make_response(text)
        response.headers["Content-Security-Policy"] = policy
        return response

    @page.get("/")
    @viewer
    def show() -> Response:
        return rendered("dashboard.html", PAGE_POLICY, routes=routes, kinds=list(EventKind))

    @page.get("/show/<kind>")
    @viewer
    def show_page(kind: str) -> Response:
        """A page of its own; of which topic, worker or cutover is in the query, for the page's script."""
        if request.path not in PAGES:
            abort(HTTPStatus.NOT_FOUND)
        return rendered("page.html", PAGE_POLICY, routes=routes, kind=kind)

    @page.get("/list")
    @viewer
    def show_list() -> Response:
        shown = listed(overview(), state=request.args.get("state", ""))
        return rendered("list.html", _LIST_POLICY, **shown)

    return page
