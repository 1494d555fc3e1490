"""States that REST, its controllers and the workers show: name of a member -> text."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import requests

from ureplicator_cli.rest_client import RestClient, RestFailure, quoted

MAX_TOPICS, MAX_WORKERS = 50, 200
"""Topics with a mismatch, and workers, that are read one by one."""
PAGES = ("status", "metrics", "health", "ready")
PAGE_TIMEOUT_S = 5.0
_NOT_JSON = frozenset({"/metrics", "/openapi.json"})


def rest_states(client: RestClient) -> Iterator[tuple[str, str]]:
    """Responses of all GET calls that need no parameter but a topic or a worker."""
    try:
        paths = client.call("GET", "/openapi.json")["paths"]
        yield "rest/metrics.txt", client.text("/metrics")
    except RestFailure as error:
        yield "rest/failure.txt", f"{error}\n"
        return
    validation = _attempt(client, "/validation")
    workers = _attempt(client, "/instances")
    names = {
        "{topic}": _topics(validation),
        "{worker}": sorted(workers.get("workers", {}))[:MAX_WORKERS],
    }
    for template in sorted(path for path, item in paths.items() if _is_readable(path, item)):
        for path in _filled(template, names):
            yield _member(path), _text(client, path)


@dataclass(frozen=True, slots=True)
class PageReader:
    """Reads pages of processes. `token`: that of `pages.token_file`, or ""; that of REST is not sent there.
    `tls`: workers' pages have `pages.tls`. `ca`: file with its authorities, or ""."""

    token: str = ""
    tls: bool = False
    ca: str = ""

    def address(self, host: str, port: int) -> str:
        return f"{'https' if self.tls else 'http'}://{host}:{port}"

    def page(self, url: str) -> str:
        """Text of a page, or why it does not respond."""
        try:
            with requests.Session() as session:
                session.trust_env = False
                session.verify = self.ca or True
                headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
                return session.get(
                    url, headers=headers, timeout=PAGE_TIMEOUT_S, allow_redirects=False
                ).text
        except requests.exceptions.RequestException as error:
            return f"{url}: {type(error).__name__}\n"


def worker_pages(client: RestClient, *, reader: PageReader) -> Iterator[tuple[str, str]]:
    """Pages of the live workers."""
    workers = _attempt(client, "/instances").get("workers", {})
    live = [(name, worker) for name, worker in workers.items() if worker["live"] and worker["host"]]
    for name, worker in live[:MAX_WORKERS]:
        for shown in PAGES:
            url = f"{reader.address(worker['host'], worker['port'])}/{shown}"
            yield f"workers/{quoted(name)}/{shown}.txt", reader.page(url)


def _is_readable(path: str, item: Mapping[str, Any]) -> bool:
    if "get" not in item or path in _NOT_JSON:
        return False
    parameters = item["get"].get("parameters", ())
    needed = [
        parameter
        for parameter in parameters
        if parameter.get("required") and parameter["in"] != "path"
    ]
    placed = path.replace("{topic}", "").replace("{worker}", "")
    return not needed and "{" not in placed and not ("{topic}" in path and "{worker}" in path)


def _filled(template: str, names: Mapping[str, list[str]]) -> Iterator[str]:
    used = [(placeholder, known) for placeholder, known in names.items() if placeholder in template]
    if not used:
        yield template
    for placeholder, known in used:
        for name in known:
            yield template.replace(placeholder, quoted(name))


def _topics(validation: Mapping[str, Any]) -> list[str]:
    return sorted({mismatch["topic"] for mismatch in validation.get("mismatches", ())})[:MAX_TOPICS]


def _attempt(client: RestClient, path: str) -> dict[str, Any]:
    try:
        return client.call("GET", path)
    except RestFailure:
        return {}


def _text(client: RestClient, path: str) -> str:
    try:
        return json.dumps(client.call("GET", path), indent=2) + "\n"
    except RestFailure as error:
        return json.dumps({"failure": str(error)}) + "\n"


def _member(path: str) -> str:
    return f"rest/{path.strip('/').replace('/', '_') or 'index'}.json"
