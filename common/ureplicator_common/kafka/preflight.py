"""Facts about a cluster that a fleet is to use: who responds, which requests, what the login may do.

`preflight_requests` reads them. Nothing that is sent changes anything: a topic is created for validation
only; a transaction, a member of a group and a partition for control records are named that do not exist;
records before the first are deleted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

from ureplicator_common.kafka.transactions.producer_memory import ProducerMemory

Versions = Mapping[int, tuple[int, int]]
"""First and last version of each request that a broker accepts, by API key."""


class Operation(IntEnum):
    """Codes of authorized operations (KIP-430)."""

    READ = 3
    WRITE = 4


class Right(StrEnum):
    CREATE_TOPICS = "create topics"
    PRODUCER_IDS = "get producer ids"
    TRANSACTIONS = "write transactions"
    GROUP = "commit positions"
    CONTROL_RECORDS = "write control records"
    DELETE_RECORDS = "delete records"


@dataclass(frozen=True, slots=True)
class Server:
    """One address. `failure`: why it does not serve; "": it does."""

    address: str
    failure: str = ""
    versions: Versions = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class VisibleTopics:
    """Topics that the login may see, but internal ones: how many, and those without a right."""

    count: int
    not_readable: tuple[str, ...] = ()
    not_writable: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """All that was read of one cluster.

    `servers`: those of `bootstrap.servers`; `advertised`: brokers that these name and that are not among
    them. `brokers`: number of those that the cluster has now, None: not known. `rights`: the refusal of each
    that was asked for, "" where it is granted. `max_message_bytes`, `memory`: of all brokers, None: not
    known. `unread`: what could not be read, with the reason.
    """

    servers: tuple[Server, ...]
    advertised: tuple[Server, ...] = ()
    cluster_id: str = ""
    brokers: int | None = None
    topics: VisibleTopics | None = None
    rights: Mapping[Right, str] = field(default_factory=dict)
    max_message_bytes: int | None = None
    memory: ProducerMemory | None = None
    unread: Mapping[str, str] = field(default_factory=dict)
