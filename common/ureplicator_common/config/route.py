"""Settings of one route: what is copied from which cluster to which, and how."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field, ValidationInfo, field_validator, model_validator

from ureplicator_common.config.audit import RouteAuditSettings
from ureplicator_common.config.mirror_maker import translated
from ureplicator_common.config.roles import MAX_TAGS, Tag
from ureplicator_common.config.section import Fault, Faults, Section
from ureplicator_common.model import (
    BROKER_DEFAULT_REPLICATION,
    DefaultsFrom,
    DeletionPolicy,
    Delivery,
    GapPolicy,
    HandlerSettings,
    Route,
    RouteSettings,
    SqlSettings,
    WorkerSelection,
)

GraceSeconds = Annotated[float, Field(ge=10.0, le=31_536_000.0)]
_FUNCTION = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")
_SELECT = re.compile(r"\s*SELECT\s.*\sFROM\s", re.IGNORECASE | re.DOTALL)
_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


class NamingSettings(Section):
    """Name of a topic on the target; by default its name on the source."""

    prefix: str = Field(default="", pattern=r"^[a-zA-Z0-9._-]*$", max_length=200)
    """Prefix of target topic names. Default none: clients fail over without a configuration change."""
    rename: Mapping[str, str] = Field(default_factory=dict)
    """Source topic -> target topic; the prefix is not applied to these."""

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
    """Source topics that are whitelisted automatically."""

    enabled: bool = False
    """Whitelist new source topics automatically. Default false: only topics that operators add are copied."""
    include: tuple[str, ...] = (".*",)
    """Regular expressions for topic names; each must match the whole name."""
    exclude: tuple[str, ...] = ("__.*",)
    """Regular expressions as in `include`; exclusion takes precedence. The default excludes topics that
    belong to tools by convention; Kafka's internal topics are never copied."""
    require_target: bool = False
    """true: only topics that already exist on the target; false: missing ones are created there."""

    @field_validator("include", "exclude")
    @classmethod
    def _patterns(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(_compiled(pattern) for pattern in patterns)


class OffsetsSettings(Section):
    """Offsets of the records at the target; see `docs/same-offsets.md`."""

    same: str = ""
    """Regular expression for whole names of source topics whose records have the same offsets at the target.
    `offsets: same` is short for `.*`, and `offsets: mapped` for none, the default: no right beyond copying is
    needed, and a target topic may hold records already. Topics with a handler or a query have mapped offsets.
    It needs `delivery: exactly_once`. A partition takes a change when it starts; one that was begun with
    mapped offsets goes on shifted, and needs a new target topic to have the same ones."""

    @model_validator(mode="before")
    @classmethod
    def _short(cls, offsets: object) -> object:
        short = {"same": ".*", "mapped": ""}
        if not isinstance(offsets, str):
            return offsets
        if offsets not in short:
            raise ValueError(
                f"unknown value {offsets!r}, expected same, mapped, or a pattern as in {{same: orders-.*}}"
            )
        return {"same": short[offsets]}

    @field_validator("same")
    @classmethod
    def _pattern(cls, same: str) -> str:
        return _compiled(same)


class GroupPatterns(Section):
    """Consumer groups by their ids."""

    include: tuple[str, ...] = (".*",)
    """Regular expressions for group ids; each must match the whole id."""
    exclude: tuple[str, ...] = ()
    """Regular expressions as in `include`; exclusion takes precedence. Groups with positions of a fleet are
    always excluded."""

    @field_validator("include", "exclude")
    @classmethod
    def _patterns(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(_compiled(pattern) for pattern in patterns)


class GroupSyncSettings(Section):
    """Sync of the offsets of consumer groups to the target (KIP-545)."""

    enabled: bool = False
    """Write the translated offsets of the source's groups to the target, where a group has no members and no
    higher offset. It needs `offset_map: true`. Default false: nothing of the target's groups is touched."""
    groups: GroupPatterns = GroupPatterns()
    interval_s: float = Field(default=5.0, ge=0.5)
    """Seconds between two rounds. A consumer that fails over reads again what it read since the last one."""
    on_source_deletion: DeletionPolicy = DeletionPolicy.KEEP
    """Fate of a group's offsets at the target when the group is deleted at the source, or expires there:
    `keep`, or `delete` after `source_deletion_grace_s`, if they are those of the sync."""
    source_deletion_grace_s: GraceSeconds = 86_400.0
    """Time from the end of a group at the source to the deletion of its offsets at the target, in seconds."""


class ConfigSyncSettings(Section):
    """Sync of the settings of topics to their target topics."""

    enabled: bool = False
    """Change the settings of target topics as those of their source topics change. Default false: differences
    are shown only, and target topics belong to the target's operators."""
    exclude: tuple[str, ...] = (
        r"(follower|leader)\.replication\.throttled\.replicas",
        r"message\.timestamp\.difference\.max\.ms",
        r"message\.timestamp\.type",
        r"unclean\.leader\.election\.enable",
        r"min\.insync\.replicas",
    )
    """Regular expressions for settings that are never changed; each must match the whole name. The default is
    that of MirrorMaker 2."""
    use_defaults_from: DefaultsFrom = DefaultsFrom.TARGET
    """Cluster whose defaults count where a source topic has no setting of its own: `target`, or `source`:
    then target topics are given the source's defaults that differ."""
    interval_s: float = Field(default=60.0, ge=0.5)
    """Seconds between two rounds."""

    @field_validator("exclude")
    @classmethod
    def _patterns(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(_compiled(pattern) for pattern in patterns)


class AclSyncSettings(Section):
    """Sync of access rights on topics to their target topics."""

    enabled: bool = False
    """Add the rights on source topics at their target topics, without those to write, and remove them again.
    Default false: rights are of the target's operators."""
    interval_s: float = Field(default=60.0, ge=0.5)
    """Seconds between two rounds."""


class HeartbeatSettings(Section):
    """Heartbeats through the whole path of the route."""

    enabled: bool = False
    """Send heartbeats to the topic `ureplicator-<fleet>-<route>-heartbeats` of the source, copy it, and
    measure the age of the newest one at the target. Default false: the leader creates and writes this topic,
    while copying needs no right to write at the source."""
    interval_s: float = Field(default=1.0, ge=0.1)
    """Seconds between two heartbeats."""


class RouteWorkersSettings(Section):
    """Workers that copy the route."""

    tags: tuple[Tag, ...] = Field(default=(), max_length=MAX_TAGS)
    """Tags of which a worker must have all (`worker.tags`) to copy the route. Default: none, any
    worker. While no worker has them, who copies a partition goes on."""
    min: int = Field(default=0, ge=0)
    """Fewer workers than this are reported at `/validation` and as a metric. With a minimum or a maximum the
    partitions of the route are divided evenly by themselves, whatever else its workers copy."""
    max: int = Field(default=0, ge=0)
    """At most so many workers copy the route; 0: no limit."""

    @model_validator(mode="after")
    def _in_order(self) -> RouteWorkersSettings:
        if 0 < self.max < self.min:
            raise Faults([Fault("max", f"{self.max} is below min {self.min}")])
        return self

    @property
    def selection(self) -> WorkerSelection:
        return WorkerSelection(tuple(sorted(set(self.tags))), self.min, self.max)


class OnHandlerError(StrEnum):
    """Treatment of a record that its handler raises for."""

    STOP = "stop"
    DEAD_LETTER = "dead_letter"


class HandlerConfig(Section):
    """Topics whose records go through user code; see `docs/handlers.md`."""

    topics: str
    """Regular expression for source topics; it must match the whole name. The first handler whose
    pattern matches is used."""
    handler: str
    """`package.module:factory`, importable on every worker; `factory(**args)` makes the handler."""
    args: Mapping[str, Any] = Field(default_factory=dict)
    """Arguments of the factory by name: any values that JSON has."""
    on_handler_error: OnHandlerError = OnHandlerError.STOP
    """Treatment of an exception of the handler. `stop`, the default, loses nothing: the partition is in ERROR
    and retries. `dead_letter`: the record goes to `dead_letter_topic`, and copying goes on."""
    dead_letter_topic: str = ""
    """Existing topic of the target for records that the handler raises for."""
    timeout_s: float = Field(default=10.0, gt=0)
    """Seconds that a handler may take for one record."""
    memory_mib: int = Field(default=256, ge=64)
    """Mebibytes of memory for the handler's process, one for each slot."""

    @field_validator("topics")
    @classmethod
    def _pattern(cls, topics: str) -> str:
        return _compiled(topics)

    @field_validator("handler")
    @classmethod
    def _importable(cls, handler: str) -> str:
        if not _FUNCTION.fullmatch(handler):
            raise ValueError(f"{handler!r} is not of the form package.module:factory")
        return handler

    @field_validator("args")
    @classmethod
    def _json(cls, args: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            json.dumps(args, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ValueError(f"not representable in JSON: {error}") from error
        return args

    @model_validator(mode="after")
    def _dead_letters(self) -> HandlerConfig:
        aside = self.on_handler_error is OnHandlerError.DEAD_LETTER
        topic = self.dead_letter_topic
        if aside and not (_TOPIC_NAME.fullmatch(topic) and topic not in (".", "..")):
            message = f"{topic!r} is not a legal topic name" if topic else "is required"
            raise Faults([Fault("dead_letter_topic", message)])
        if topic and not aside:
            raise Faults([Fault("dead_letter_topic", "needs on_handler_error: dead_letter")])
        return self

    @property
    def settings(self) -> HandlerSettings:
        return HandlerSettings(
            topics=self.topics,
            handler=self.handler,
            args=json.dumps(dict(self.args), sort_keys=True),
            dead_letter_topic=self.dead_letter_topic,
            timeout_s=self.timeout_s,
            memory_bytes=self.memory_mib << 20,
        )


class SqlConfig(Section):
    """Topics whose records go through a query of Spark SQL; see `docs/sql.md`."""

    topics: str
    """Regular expression for source topics; it must match the whole name. The first entry whose pattern
    matches is used, and handlers come first."""
    query: str
    """`SELECT ... FROM records [WHERE ...]`, row by row: neither aggregates nor joins."""
    udfs: tuple[str, ...] = ()
    """`package.module:register`, importable on every worker; `register(spark)` registers functions."""
    max_rows: int = Field(default=50_000, ge=1)
    """Most records in a round, which is one evaluation of the query."""
    max_mib: int = Field(default=16, ge=1, le=128)
    """Most mebibytes of decoded records in a round, unless one record has more."""
    timeout_s: float = Field(default=120.0, gt=0)
    """Seconds that a round may take; then the partition of its first record stops."""
    memory_mib: int = Field(default=512, ge=512)
    """Mebibytes of heap for the JVM, one for each slot; it takes about 300 more."""

    @field_validator("topics")
    @classmethod
    def _pattern(cls, topics: str) -> str:
        return _compiled(topics)

    @field_validator("query")
    @classmethod
    def _select(cls, query: str) -> str:
        if not _SELECT.match(query):
            raise ValueError("expected SELECT ... FROM records")
        return query.strip()

    @field_validator("udfs")
    @classmethod
    def _importable(cls, udfs: tuple[str, ...]) -> tuple[str, ...]:
        for name in udfs:
            if not _FUNCTION.fullmatch(name):
                raise ValueError(f"{name!r} is not of the form package.module:register")
        return udfs

    @property
    def settings(self) -> SqlSettings:
        return SqlSettings(
            topics=self.topics,
            query=self.query,
            udfs=self.udfs,
            max_rows=self.max_rows,
            max_bytes=self.max_mib << 20,
            timeout_s=self.timeout_s,
            memory_bytes=self.memory_mib << 20,
        )


def _compiled(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r} is not a regular expression: {error}") from error
    return pattern


class RouteConfig(Section):
    """One direction of replication."""

    source: str
    """Cluster to copy from, one of `clusters`."""
    target: str
    """Cluster to copy to, one of `clusters`."""
    delivery: str = Delivery.EXACTLY_ONCE.value
    """Delivery guarantee. `exactly_once`: every consumer sees each record once; what a handler or a query
    puts out is committed with its position in transactions, so that consumers with `read_committed` see it
    once. `at_least_once`: a crash may repeat records and loses none."""
    start: str = "earliest"
    """Start position of the partitions that existed when their topic was whitelisted: `earliest`,
    `latest`, an ISO 8601 time or milliseconds since 1970. The default loses nothing."""
    on_gap: GapPolicy = GapPolicy.STOP
    """Policy when the source no longer has the stored position: `stop`, `earliest` or `latest`. Only
    `stop`, the default, cannot lose records unnoticed."""
    abort_on_send_failure: bool = True
    """true: a record that the target rejects permanently stops its partition; false: it is skipped and
    counted."""
    publish_to_source: bool = True
    """Commit positions to a consumer group on the source, too, so that consumer lag tools work."""
    verify_crc: bool = True
    """Verify the CRC of each fetched batch: costs a few per cent of CPU, and corrupt batches are not
    passed on."""
    offset_map: bool = False
    """Write where each record lies on the target to the topic `ureplicator-<fleet>-<route>-offset-map` there,
    so that offsets can be translated. The copiers create the topic and need the rights for it: CREATE,
    DESCRIBE, WRITE and READ, and DESCRIBE_CONFIGS where its `min.insync.replicas` is above 1."""
    offsets: OffsetsSettings = OffsetsSettings()
    claim_targets: bool = False
    """Claim each target topic in the topic `ureplicator-claims` of the target cluster, so that no other fleet
    writes to it or copies it back, as far as it claims its targets, too. The controllers create the topic and
    need the rights for it: CREATE, DESCRIBE, WRITE and READ, and DESCRIBE and READ at the source, if it is
    there. Default false: most clusters belong to one fleet."""
    handlers: tuple[HandlerConfig, ...] = ()
    """Topics whose records go through a handler: user code that filters, changes or redirects them."""
    audit: RouteAuditSettings = RouteAuditSettings()
    workers: RouteWorkersSettings = RouteWorkersSettings()
    sql: tuple[SqlConfig, ...] = ()
    """Topics whose records go through a query of Spark SQL that filters and changes them row by row."""
    sync_group_offsets: GroupSyncSettings = GroupSyncSettings()
    sync_topic_configs: ConfigSyncSettings = ConfigSyncSettings()
    sync_topic_acls: AclSyncSettings = AclSyncSettings()
    heartbeats: HeartbeatSettings = HeartbeatSettings()
    naming: NamingSettings = NamingSettings()
    auto_whitelist: AutoWhitelistSettings = AutoWhitelistSettings()
    replication_factor: int = Field(default=BROKER_DEFAULT_REPLICATION, ge=-1, le=32_767)
    """Replicas of the target topics that the route creates, and of the topic of its offset map; -1: as many
    as the brokers' default. Topics that exist keep theirs."""
    auto_expand: bool = True
    """Copy also partitions that are added to a source topic whose partitions are all whitelisted.
    Default true: otherwise their records would be missing on the target."""
    on_source_deletion: DeletionPolicy = DeletionPolicy.KEEP
    """Fate of a target topic when its source topic is deleted: `keep`, or `delete` after
    `source_deletion_grace_s`, if the route has created it."""
    source_deletion_grace_s: GraceSeconds = 86_400.0
    """Time from the deletion of a source topic to that of its target topic, in seconds."""

    @model_validator(mode="before")
    @classmethod
    def _spellings(cls, route: object) -> object:
        return translated(route) if isinstance(route, Mapping) else route

    @field_validator("replication_factor")
    @classmethod
    def _replicas(cls, replication_factor: int) -> int:
        if replication_factor == 0:
            raise ValueError("expected a number from 1, or -1 for the default of the brokers")
        return replication_factor

    @field_validator("delivery")
    @classmethod
    def _supported(cls, delivery: str) -> str:
        if delivery not in set(Delivery):
            expected = " or ".join(Delivery)
            raise ValueError(f"unknown value {delivery!r}, expected {expected}")
        return delivery

    @field_validator("offsets")
    @classmethod
    def _unrepeated(cls, offsets: OffsetsSettings, info: ValidationInfo) -> OffsetsSettings:
        if offsets.same and info.data.get("delivery") == Delivery.AT_LEAST_ONCE:
            raise ValueError(
                "same needs delivery: exactly_once on the same route, else a repeated record shifts the"
                " offsets of all that follow it"
            )
        return offsets

    @field_validator("sync_group_offsets")
    @classmethod
    def _mapped(cls, sync: GroupSyncSettings, info: ValidationInfo) -> GroupSyncSettings:
        if sync.enabled and info.data.get("offset_map") is False:
            raise ValueError(
                "enabled needs offset_map: true on the same route, else offsets of groups with unread"
                " records cannot be translated"
            )
        return sync

    @field_validator("start", mode="before")
    @classmethod
    def _instant(cls, start: object) -> str:
        """`earliest`, `latest` or milliseconds as text. YAML has already parsed an unquoted date."""
        if isinstance(start, str) and start in ("earliest", "latest"):
            return start
        milliseconds = _milliseconds(start)
        if milliseconds is None or milliseconds < 0:
            raise ValueError(
                "expected earliest, latest, an ISO 8601 time or milliseconds since 1970"
            )
        return str(milliseconds)

    @property
    def route(self) -> Route:
        return Route(self.source, self.target)

    @property
    def settings(self) -> RouteSettings:
        """The settings that the leader publishes for the workers."""
        return RouteSettings(
            delivery=Delivery(self.delivery),
            start=self.start,
            on_gap=self.on_gap,
            abort_on_send_failure=self.abort_on_send_failure,
            publish_to_source=self.publish_to_source,
            verify_crc=self.verify_crc,
            offset_map=self.offset_map,
            replication_factor=self.replication_factor,
            prefix=self.naming.prefix,
            rename=dict(self.naming.rename),
            handlers=tuple(transform.settings for transform in self.handlers),
            sql=tuple(transform.settings for transform in self.sql),
            same_offsets=self.offsets.same,
            workers=self.workers.selection,
        )


def _milliseconds(value: object) -> int | None:
    """Milliseconds since 1970 of a number, a date or a text; UTC if no time zone is given."""
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
