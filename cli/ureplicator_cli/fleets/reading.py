"""Readings of several fleets at once: a fleet that does not respond delays the others by no more than its
time-out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from ureplicator_cli.rest_client import RestClient, RestFailure

TIMEOUT_S = 15.0
AT_ONCE = 16
PATHS = ("/ready", "/validation", "/export")


@dataclass(frozen=True, slots=True)
class Reading:
    """Responses of a fleet, by path; or the reason why there are none."""

    url: str
    responses: Mapping[str, Mapping[str, Any]]
    failure: str = ""

    @property
    def name(self) -> str:
        """The fleet's own name; its URL while that is not known."""
        return str(self.responses["/export"]["fleet"]) if self.responses else self.url


def read_fleets(urls: Sequence[str]) -> list[Reading]:
    """One reading for each URL, in their order."""
    # Made here: the command's login is not known to other threads.
    clients = [RestClient(url, timeout_s=TIMEOUT_S) for url in urls]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(_read, urls, clients))


def _read(url: str, client: RestClient) -> Reading:
    try:
        return Reading(url, {path: client.call("GET", path) for path in PATHS})
    except RestFailure as error:
        return Reading(url, {}, str(error))
