"""Read-only page of several fleets: what `ureplicator fleets` prints, read again and again.

It is one table, drawn here; a script of a few lines asks for it again. A request never waits for a fleet: it
gets the last picture with its age. The page listens on this machine only, since it shows what the caller's
login may read.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from http import HTTPStatus
from typing import Any
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from ureplicator_cli.fleets.reading import Reading
from ureplicator_cli.fleets.rows import HEADS, Survey, row
from ureplicator_common.clock import Clock, utc_text
from ureplicator_common.pages.policy import PAGE_POLICY
from ureplicator_common.pages.web import WebServer, json_page
from ureplicator_common.printable import printable

HOST = "127.0.0.1"
REFRESH_S = 2
"""Time between two requests of a page for the last picture."""
_CSS = """
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
html { background: #fff; color: #111; }
a { color: #0645ad; }
@media (prefers-color-scheme: dark) { html { background: #111; color: #eee; } a { color: #8ab4f8; } }
body { margin: 1.5rem auto; max-width: 70rem; padding: 0 1rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { padding: .35rem .6rem; text-align: right; border-bottom: 1px solid #8886; }
th:first-child, td:first-child, th:nth-child(2), td:nth-child(2) { text-align: left; }
.look { font-weight: 600; }
"""
_SCRIPT = """
const LOST = "The server of this page does not respond: what is shown is the last that was read.";
async function refresh() {
  try {
    const text = await (await fetch("./")).text();
    const read = new DOMParser().parseFromString(text, "text/html");
    document.querySelector("main").replaceWith(read.querySelector("main"));
  } catch {
    document.querySelector("main > p").textContent = LOST;
  }
}
setInterval(refresh, REFRESH_MS);
"""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Picture:
    """A survey, and when it was made, in milliseconds since 1970."""

    survey: Survey
    at_ms: int


def page_html(picture: Picture | None, *, now_ms: int) -> str:
    """The page; None: nothing has been read yet."""
    if picture is None:
        return _document("<p>The fleets are being read.</p>")
    age_s = max(0, now_ms - picture.at_ms) // 1_000
    survey, findings = picture.survey, picture.survey.findings
    heads = "".join(f'<th scope="col">{escape(head)}</th>' for head in HEADS)
    rows = "".join(_row_html(reading) for reading in survey.readings)
    body = (
        f"<p>{'Look here:' if findings else 'In order,'} read at"
        f" {utc_text(picture.at_ms)}, {age_s} s ago.</p>"
        f'<div class="wide" tabindex="0"><table><thead><tr>{heads}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>{_list_html('Findings', findings)}"
        f"{_list_html('Conditions', survey.conditions)}"
    )
    return _document(body)


def _row_html(reading: Reading) -> str:
    cells = [str(cell) for cell in row(reading)]
    name = f'<a href="{escape(_link(reading.url))}">{_shown(cells[0])}</a>'
    marked = ' class="look"' if reading.failure else ""
    rest = "".join(f"<td>{_shown(cell)}</td>" for cell in cells[1:])
    return f'<tr{marked}><th scope="row">{name}</th>{rest}</tr>'


def _link(url: str) -> str:
    """The dashboard, whose references are relative to a path that ends with a slash."""
    named = url if url.startswith(("http://", "https://")) else f"http://{url}"
    return f"{named.rstrip('/')}/"


def _list_html(title: str, lines: Sequence[str]) -> str:
    items = "".join(f"<li>{_shown(line)}</li>" for line in lines)
    return f"<h2>{title}</h2><ul>{items}</ul>" if lines else ""


def _shown(text: str) -> str:
    return escape(printable(text))


def _document(body: str) -> str:
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<title>uReplicator fleets</title><link rel="icon" href="data:,">'
        '<link rel="stylesheet" href="fleets.css"><script src="fleets.js" defer></script></head>'
        f"<body><main><h1>uReplicator fleets</h1>{body}</main></body></html>\n"
    )


class FleetsPage:
    """Serves the page; `run` surveys the fleets again and again until it is stopped.

    `survey` reads all fleets once. `interval_s`: from the end of a survey to the next.
    """

    def __init__(
        self, survey: Callable[[], Survey], *, port: int, interval_s: int, clock: Clock
    ) -> None:
        """Raises PermanentError if the port cannot be bound."""
        self._survey = survey
        self._interval_s = interval_s
        self._clock = clock
        self._picture: Picture | None = None
        self._stopping = threading.Event()
        self._web = WebServer(host=HOST, port=port, role="fleets")
        self.url = f"http://{HOST}:{self._web.port}/"
        script = _SCRIPT.replace("REFRESH_MS", str(1_000 * REFRESH_S))
        self._web.show(
            {
                "/": _page("text/html; charset=utf-8", self._html),
                "/fleets.css": _page("text/css; charset=utf-8", lambda: _CSS),
                "/fleets.js": _page("text/javascript; charset=utf-8", lambda: script),
                "/fleets.json": json_page(self._json),
            }
        )

    def run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._picture = Picture(self._survey(), self._clock.wall_ms())
            except Exception:  # the last picture stays, with its age
                log.exception("the fleets were not read")
            self._stopping.wait(self._interval_s)

    def stop(self) -> None:
        """Safe in a signal handler."""
        self._stopping.set()

    def close(self) -> None:
        self._web.close()

    def _html(self) -> str:
        return page_html(self._picture, now_ms=self._clock.wall_ms())

    def _json(self) -> tuple[HTTPStatus, Mapping[str, Any]]:
        picture = self._picture
        if picture is None:
            return HTTPStatus.SERVICE_UNAVAILABLE, {"title": "the fleets are being read"}
        return HTTPStatus.OK, {"readMs": picture.at_ms, **picture.survey.as_json()}


def _page(content_type: str, text: Callable[[], str]) -> WSGIApplication:
    def page(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        headers = [("Content-Type", content_type), ("Content-Security-Policy", PAGE_POLICY)]
        start_response("200 OK", headers)
        return [text().encode()]

    return page
