"""Requests that a page of another site makes a browser send, and headers for browsers.

REST has no login, so a page that an operator opens must neither steer the fleet nor read about it:

| request                                           | sign                                                 |
|---------------------------------------------------|------------------------------------------------------|
| a write from a page of another site               | `Sec-Fetch-Site` is not `same-origin` or `none`; in  |
|                                                   | browsers without it, another `Origin` than `Host`    |
| any request under a name that an attacker has let | `Host` is a public name that is not in               |
| point to this address (DNS rebinding)             | `controller.allowed_hosts`                           |

Programs send neither header, and mostly use an address. Addresses, `localhost`, and names that nobody can
register count as the controller's own.

Source: Fetch Metadata Request Headers (W3C); RFC 6454 (Origin); RFC 6761, 6762 and 8375 (names).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Collection
from http import HTTPStatus
from urllib.parse import urlsplit

from flask import Request, Response, request

from ureplicator_controller.api.http.problems import Problem
from ureplicator_controller.api.http.request_ids import is_write

PRIVATE_NAMES = (".local", ".localhost", ".internal", ".svc", ".home.arpa")
"""Ends of names that no public registry gives away; `cluster.local` is that of Kubernetes."""
FROM_HERE = ("same-origin", "none")
"""`none`: the user has typed the address."""
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}


def refuse_foreign(allowed: Collection[str]) -> Callable[[], None]:
    """The check before each request. It raises Problem. `allowed`: further names of the controllers."""
    names = frozenset(name.lower() for name in allowed)

    def check() -> None:
        host = _name(request.host)
        if not (is_private(host) or host in names):
            raise _forbidden(
                f"{host!r} is not a name of this controller",
                field="Host",
                hint="add the name to controller.allowed_hosts",
            )
        if is_write() and (foreign := _foreign_page(request, names)):
            raise _forbidden(
                "the request comes from a page of another site",
                field=foreign,
                hint="use the dashboard of a controller, or a program",
            )

    return check


def is_private(host: str) -> bool:
    """True for an address, and for a name that nobody can register: no page of the Web has it."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return "." not in host or host.endswith(PRIVATE_NAMES)
    return True


def add_headers(response: Response) -> Response:
    """Headers that each response has unless the view has set others."""
    for name, value in _HEADERS.items():
        response.headers.setdefault(name, value)
    return response


def _foreign_page(request: Request, names: Collection[str]) -> str:
    """The header that gives a page of another site away, or ""."""
    site = request.headers.get("Sec-Fetch-Site")
    if site is not None:
        return "" if site in FROM_HERE else "Sec-Fetch-Site"
    origin = request.headers.get("Origin")
    if origin is None or urlsplit(origin).netloc == request.host:
        return ""
    return "" if _name(urlsplit(origin).netloc) in names else "Origin"


def _name(netloc: str) -> str:
    """Host of `host:port`, without the brackets of an IPv6 address."""
    name, colon, port = netloc.rpartition(":")
    host = name if colon and port.isdecimal() else netloc
    return host.strip("[]").rstrip(".").lower()


def _forbidden(detail: str, *, field: str, hint: str) -> Problem:
    return Problem(HTTPStatus.FORBIDDEN, detail, field=field, hint=hint)
