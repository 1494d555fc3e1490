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


def clients_of(urls: Sequence[str]) -> Mapping[str, RestClient]:
    """With the login of the command, which other threads do not know."""
    return {url: RestClient(url, timeout_s=TIMEOUT_S) for url in urls}


def read_fleets(clients: Mapping[str, RestClient]) -> list[Reading]:
    """One reading for each fleet, in their order."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(_read, clients, clients.values()))


def _read(url: str, client: RestClient) -> Reading:
    try:
        return Reading(url, {path: client.call("GET", path) for path in PATHS})
    except RestFailure as error:
        return Reading(url, {}, str(error))
