"""Place of a worker's tasks, by its `spark.master`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from ipaddress import ip_address

_FORMS = {
    "local": re.compile(r"local(\[(\d+|\*)\])?"),
    "spark": re.compile(r"spark://[^\s,/:]+:\d+(,[^\s,/:]+:\d+)*"),
    "k8s": re.compile(r"k8s://(https?://)?[^\s/]+\S*"),
}


class Master(StrEnum):
    """Kind of cluster manager. LOCAL: the tasks run in the worker's own JVM."""

    LOCAL = "local"
    STANDALONE = "spark"
    KUBERNETES = "k8s"

    @classmethod
    def of(cls, url: str) -> Master | None:
        """None: no master that copiers can run on."""
        return next((master for master in cls if _FORMS[master].fullmatch(url)), None)


def executors_elsewhere(url: str) -> bool:
    """True if executors may be on other machines: not for a standalone master on the loopback address."""
    master = Master.of(url)
    if master is Master.STANDALONE:
        return not all(is_loopback(host) for host in _hosts(url))
    return master is Master.KUBERNETES


def is_loopback(host: str) -> bool:
    return host == "localhost" or (_is_address(host) and ip_address(host).is_loopback)


def is_any(host: str) -> bool:
    """True for the address that means all addresses of a machine."""
    return _is_address(host) and ip_address(host).is_unspecified


def _hosts(url: str) -> Iterator[str]:
    for address in url.removeprefix("spark://").split(","):
        yield address.rpartition(":")[0]


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
