"""Facts about this machine, REST and ZooKeeper, as they were read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HostFacts:
    """`java_failure`: why workers cannot start a JVM, else "". `memory_bytes`, `is_clock_synchronised`:
    None if the system does not tell. `name_address`: of the host's own name, "" if it has none.
    `user_name`: "" for a user id without one."""

    python: str
    version: str
    java: str
    java_failure: str
    pyspark: str
    open_files: int
    memory_bytes: int | None
    is_clock_synchronised: bool | None
    name: str
    name_address: str
    user_id: int
    user_name: str


@dataclass(frozen=True, slots=True)
class RestFacts:
    address: str
    port_failure: str
    mode: str
    has_tls: bool


@dataclass(frozen=True, slots=True)
class ZooKeeperFacts:
    """`servers`: failure of each, "" if it responds; `refusal`: why `tree` may not be written, else ""."""

    servers: Mapping[str, str]
    tree: str
    has_login: bool
    refusal: str = ""
