"""Options of the data source, under the names of Spark's own Kafka source.

Spark hands over names in lower case. An option that is not known is an error: one that is ignored would
read other records than were meant.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ureplicator_common.errors import ConfigurationError
from ureplicator_common.kafka.client import EARLIEST, LATEST
from ureplicator_common.kafka.security.settings import faults as security_faults
from ureplicator_common.kafka.security.settings import is_security
from ureplicator_worker.kafka_batches.bounds import Bound, TopicPartition

BATCH_ONLY = ("endingoffsets", "endingtimestamp", "endingoffsetsbytimestamp", "pushfilters")
STREAM_ONLY = ("maxoffsetspertrigger",)
KNOWN = (
    "subscribe",
    "assign",
    "startingoffsets",
    "startingtimestamp",
    "startingoffsetsbytimestamp",
    *BATCH_ONLY,
    *STREAM_ONLY,
    "minpartitions",
    "maxrecordsperpartition",
    "failondataloss",
    "includeheaders",
    "kafkaconsumer.polltimeoutms",
)
KAFKA = "kafka."
SERVERS = "bootstrap.servers"
TIMEOUT_MS = 120_000

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Options:
    """`assigned`: partitions to read; empty for all of `topics`. 0: no limit."""

    cluster: Mapping[str, str] = field(repr=False)
    topics: tuple[str, ...]
    assigned: tuple[TopicPartition, ...]
    start: Bound
    end: Bound
    max_offsets_per_trigger: int
    min_partitions: int
    max_records_per_partition: int
    fail_on_data_loss: bool
    include_headers: bool
    push_filters: bool
    timeout_s: float


def read_options(given: Mapping[str, str], *, streaming: bool) -> Options:
    """Raises ConfigurationError with the name of the option."""
    options = {name.lower(): value for name, value in given.items()}
    _check_names(options, streaming=streaming)
    topics, assigned = _topics(options)
    poll_ms = _value(options, "kafkaconsumer.polltimeoutms", _positive, TIMEOUT_MS)
    return Options(
        cluster=_cluster(options),
        topics=topics,
        assigned=assigned,
        start=_bound(options, "starting", default=LATEST if streaming else EARLIEST),
        end=_bound(options, "ending", default=LATEST),
        max_offsets_per_trigger=_value(options, "maxoffsetspertrigger", _positive, 0),
        min_partitions=_value(options, "minpartitions", _positive, 0),
        max_records_per_partition=_value(options, "maxrecordsperpartition", _positive, 0),
        fail_on_data_loss=_value(options, "failondataloss", _flag, True),
        include_headers=_value(options, "includeheaders", _flag, False),
        push_filters=_value(options, "pushfilters", _flag, False),
        timeout_s=poll_ms / 1_000,
    )


def _check_names(options: Mapping[str, str], *, streaming: bool) -> None:
    for name in options:
        if not name.startswith(KAFKA) and name not in KNOWN:
            raise ConfigurationError(f"option {name} is not known to kafka_batches")
    for name in BATCH_ONLY if streaming else STREAM_ONLY:
        if name in options:
            kind = "a stream" if streaming else "a batch"
            raise ConfigurationError(f"option {name} is not for {kind}")


def _cluster(options: Mapping[str, str]) -> dict[str, str]:
    cluster = {
        name.removeprefix(KAFKA): value for name, value in options.items() if name.startswith(KAFKA)
    }
    if not cluster.get(SERVERS):
        raise ConfigurationError(f"option {KAFKA}{SERVERS} is required")
    for name in cluster:
        if name != SERVERS and not is_security(name):
            raise ConfigurationError(f"option {KAFKA}{name} is not known to kafka_batches")
    for name, text in security_faults(cluster):
        raise ConfigurationError(f"option {KAFKA}{name}: {text}")
    return cluster


def _topics(options: Mapping[str, str]) -> tuple[tuple[str, ...], tuple[TopicPartition, ...]]:
    if ("subscribe" in options) == ("assign" in options):
        raise ConfigurationError("one of the options subscribe and assign is required")
    if "subscribe" in options:
        topics = [topic.strip() for topic in options["subscribe"].split(",") if topic.strip()]
        if not topics:
            raise ConfigurationError("option subscribe names no topic")
        return tuple(dict.fromkeys(topics)), ()
    nothing: tuple[TopicPartition, ...] = ()
    assigned = _value(options, "assign", _assigned, nothing)
    return tuple(dict.fromkeys(topic for topic, _ in assigned)), assigned


def _assigned(text: str) -> tuple[TopicPartition, ...]:
    found = tuple(
        sorted({(str(topic), int(n)) for topic, rows in json.loads(text).items() for n in rows})
    )
    if not found:
        raise ValueError("it names no partition")
    return found


def _bound(options: Mapping[str, str], which: str, *, default: int) -> Bound:
    """A time goes before times by partition, and these before offsets."""
    nothing: dict[TopicPartition, int] = {}
    timestamp = _value(options, f"{which}timestamp", _natural, -1)
    if timestamp >= 0:
        return Bound(timestamp)
    by_time = _value(options, f"{which}offsetsbytimestamp", _by_partition(minimum=0), nothing)
    if by_time:
        return Bound(None, times_ms=by_time)
    name = f"{which}offsets"
    text = options.get(name, "").strip()
    if text.lower() == "latest":
        return Bound(LATEST)
    if text.lower() == "earliest" and which == "starting":
        return Bound(EARLIEST)
    minimum = EARLIEST if which == "starting" else LATEST
    offsets = _value(options, name, _by_partition(minimum=minimum), nothing)
    return Bound(None, offsets=offsets) if offsets else Bound(default)


def _by_partition(*, minimum: int) -> Callable[[str], dict[TopicPartition, int]]:
    def read(text: str) -> dict[TopicPartition, int]:
        found = {
            (str(topic), int(number)): int(value)
            for topic, rows in json.loads(text).items()
            for number, value in rows.items()
        }
        if any(value < minimum for value in found.values()):
            raise ValueError(f"a value is below {minimum}")
        if not found:
            raise ValueError("it names no partition")
        return found

    return read


def _value(options: Mapping[str, str], name: str, read: Callable[[str], T], default: T) -> T:
    if name not in options:
        return default
    try:
        return read(options[name])
    except (ValueError, TypeError, AttributeError) as error:
        raise ConfigurationError(f"option {name}: {options[name]!r} is wrong: {error}") from error


def _natural(text: str) -> int:
    number = int(text)
    if number < 0:
        raise ValueError("below 0")
    return number


def _positive(text: str) -> int:
    number = int(text)
    if number <= 0:
        raise ValueError("not above 0")
    return number


def _flag(text: str) -> bool:
    flags: Mapping[str, Any] = {"true": True, "false": False}
    if text.strip().lower() not in flags:
        raise ValueError("neither true nor false")
    return bool(flags[text.strip().lower()])
