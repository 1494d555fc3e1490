"""The settings of one route, as the file has them, and what every section of the file is made of.

A part of `settings`, which tells how the whole is read and checked.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time

from pydantic import BaseModel, ConfigDict, Field, field_validator

from ureplicator_common.config.sources import Fault
from ureplicator_common.model import Delivery, GapPolicy, Route, RouteSettings

_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


class Faults(ValueError):
    """Several faults found by one check; the keys are relative to what was checked."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__("; ".join(map(str, faults)))
        self.faults = tuple(faults)


class Section(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", coerce_numbers_to_str=True, use_attribute_docstrings=True
    )


class NamingSettings(Section):
    """What a source topic is called on the target; the same name unless said otherwise."""

    prefix: str = Field(default="", pattern=r"^[a-zA-Z0-9._-]*$", max_length=200)
    """Stands before the source topic's name. Empty: clients move over without a change."""
    rename: Mapping[str, str] = Field(default_factory=dict)
    """Source topic -> target topic; the prefix does not count for these."""

    @field_validator("rename")
    @classmethod
    def _legal_and_unique(cls, rename: Mapping[str, str]) -> Mapping[str, str]:
        faults = []
        taken: dict[str, str] = {}
        for source, target in rename.items():
            for name in (source, target):
                if not _TOPIC_NAME.fullmatch(name) or name in (".", ".."):
                    faults.append(Fault(source, f"{name!r} is not a legal topic name"))
            if target in taken:
                faults.append(
                    Fault(source, f"{target!r} is already the target of {taken[target]!r}")
                )
            taken.setdefault(target, source)
        if faults:
            raise Faults(faults)
        return rename


class AutoWhitelistSettings(Section):
    """Which source topics are copied without being asked for."""

    enabled: bool = False
    """Copy what appears at the source. Off: nothing is copied that nobody asked for."""
    include: tuple[str, ...] = (".*",)
    """Regular expressions, each for a whole topic name."""
    exclude: tuple[str, ...] = ("__.*",)
    """As `include`; exclusion wins. The default leaves out what belongs to tools by convention;
    topics that are internal to Kafka are never copied."""
    require_target: bool = False
    """Only topics that the target has already; false: they are made there."""

    @field_validator("include", "exclude")
    @classmethod
    def _patterns(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in patterns:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"{pattern!r} is not a regular expression: {error}") from error
        return patterns


class RouteConfig(Section):
    """One way records go, and how."""

    source: str
    """Name of the cluster to copy from, one of `clusters`."""
    target: str
    """Name of the cluster to copy to, one of `clusters`."""
    delivery: str = Delivery.AT_LEAST_ONCE.value
    """What a crash may do: repeat some records, lose none. The only choice of this version."""
    start: str = "earliest"
    """Where partitions begin that existed when their topic was whitelisted: `earliest`, `latest`, a
    time in ISO 8601 or in milliseconds. The default loses nothing."""
    on_gap: GapPolicy = GapPolicy.STOP
    """What to do when the source no longer has the position. Stopping is the only choice that
    cannot lose records unseen."""
    abort_on_send_failure: bool = True
    """A record the target will never take stops its partition; false: it is skipped and counted."""
    publish_to_source: bool = True
    """Positions also go to an ordinary group on the source, so that the usual lag tools work."""
    verify_crc: bool = True
    """Check each batch when it is read: a few per cent of CPU against passing on broken bytes."""
    naming: NamingSettings = NamingSettings()
    auto_whitelist: AutoWhitelistSettings = AutoWhitelistSettings()
    auto_expand: bool = True
    """Partitions that the source adds to a topic are copied too, if all of it is. Else their
    records would be missing until somebody looks."""

    @field_validator("delivery")
    @classmethod
    def _offered(cls, delivery: str) -> str:
        if delivery == "exactly_once":
            raise ValueError("exactly_once is not offered by this version, only at_least_once")
        if delivery not in set(Delivery):
            raise ValueError(f"{delivery!r} is unknown, at_least_once is expected")
        return delivery

    @field_validator("start", mode="before")
    @classmethod
    def _instant(cls, start: object) -> str:
        """`earliest`, `latest` or milliseconds as text. YAML has already read an unquoted date."""
        if isinstance(start, str) and start in ("earliest", "latest"):
            return start
        milliseconds = _milliseconds(start)
        if milliseconds is None or milliseconds < 0:
            raise ValueError(
                "earliest, latest, a time in ISO 8601 or milliseconds since 1970 is expected"
            )
        return str(milliseconds)

    @property
    def route(self) -> Route:
        return Route(self.source, self.target)

    @property
    def settings(self) -> RouteSettings:
        """What the leader publishes for the workers."""
        return RouteSettings(
            delivery=Delivery(self.delivery),
            start=self.start,
            on_gap=self.on_gap,
            abort_on_send_failure=self.abort_on_send_failure,
            publish_to_source=self.publish_to_source,
            verify_crc=self.verify_crc,
            prefix=self.naming.prefix,
            rename=dict(self.naming.rename),
        )


def _milliseconds(value: object) -> int | None:
    """Milliseconds since 1970 of a number, a date or a text; without a zone it is UTC."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        if value.strip().isdecimal():
            return int(value)
        try:
            value = datetime.fromisoformat(value.strip())
        except ValueError:
            return None
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime.combine(value, time())
    if isinstance(value, datetime):
        aware = value if value.tzinfo else value.replace(tzinfo=UTC)
        return round(aware.timestamp() * 1_000)
    return value if isinstance(value, int) else None
