"""Request models: they validate what clients send, and the schema at /openapi.json is generated from them.

A model gives each field a name in plain words (`title`) and its accepted values (`description`); a
refusal is built from the same two, so message, validation and schema cannot drift apart. Unknown fields
and parameters are refused: a misspelt one would be ignored silently.

Numbers may be text ("4"), as uReplicator's tools send them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Annotated, Any, ClassVar, Literal

from flask import request
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    Strict,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails, PydanticCustomError

from ureplicator_common.config.route import RouteConfig
from ureplicator_common.config.settings import Settings
from ureplicator_common.model import EventKind, Route
from ureplicator_common.printable import did_you_mean
from ureplicator_common.znodes.topics import MAX_TOPIC_PARTITIONS
from ureplicator_controller.api.http.json_bodies import given_twice
from ureplicator_controller.api.http.preconditions import PATTERN, Precondition
from ureplicator_controller.api.http.problems import Problem, bad_request, not_found
from ureplicator_controller.api.http.schema_cache import CachedSchemaModel

MAX_NUMBER = 999_999_999

_DIGITS = re.compile(r"[0-9]{1,9}")
_INTERNAL = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
_REFUSED = "refused"
_ROUTE_HINT = "choose one with ?src=SOURCE&dst=TARGET"


class RequestModel(CachedSchemaModel):
    """Base of all request models; turns the errors of pydantic into one problem."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    item_name: ClassVar[str] = "field"

    @model_validator(mode="wrap")
    @classmethod
    def _checked(cls, data: Any, handler: ModelWrapValidatorHandler[RequestModel]) -> RequestModel:
        cls.check_input(data)
        try:
            return handler({} if data is None else data)
        except ValidationError as error:
            found = error.errors(include_url=False)
            raise _refusal(cls, max(found, key=_is_unknown)) from error

    @classmethod
    def check_input(cls, data: Any) -> None:
        """Check the input as a whole. Raises Problem."""


class Path(RequestModel):
    """Parts of the path."""


class Query(RequestModel):
    """Query parameters. Used as it is: there are none."""

    item_name: ClassVar[str] = "parameter"

    @classmethod
    def check_input(cls, data: Any) -> None:
        for name, values in request.args.lists():
            if len(values) > 1:
                raise given_twice(name)


class Body(RequestModel):
    """A JSON object that is required."""

    @classmethod
    def check_input(cls, data: Any) -> None:
        if data is None:
            raise bad_request("the body is empty", hint=_example(cls))


class OptionalBody(RequestModel):
    """A JSON object, or an empty body. Used as it is: it has no fields."""

    model_config = ConfigDict(openapi_extra={"required": False})  # type: ignore[typeddict-unknown-key]


class IfMatchHeader(RequestModel):
    """Headers of a write."""

    model_config = ConfigDict(extra="ignore")

    if_match: str | None = Field(
        default=None,
        alias="If-Match",
        pattern=PATTERN,
        title="an ETag as returned by GET",
        description='"123" or several of them, or *; weak ETags (W/...) are not supported',
    )

    @property
    def condition(self) -> Precondition:
        return Precondition.of(self.if_match)


# --- Values


def _whole(value: object) -> object:
    """4, "4" and 4.0 are the same; true is not 1."""
    if isinstance(value, str) and _DIGITS.fullmatch(value):
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _not_internal(name: str) -> str:
    if name in (".", ".."):
        raise ValueError
    if name in _INTERNAL:
        detail = f"{name} is internal to the brokers and is not copied"
        raise PydanticCustomError(_REFUSED, detail, {"hint": "choose a topic that is not internal"})
    return name


_DigitsSchema = Annotated[str, Field(pattern="^[0-9]{1,9}$")]
_Whole = BeforeValidator(_whole)
_WHOLE_TITLE = "a whole number"

TopicName = Annotated[
    str, Field(pattern=r"^[a-zA-Z0-9._-]{1,249}$", max_length=249), AfterValidator(_not_internal)
]
"""A name that a source topic may have."""
Count = Annotated[
    int,
    Strict(),
    Field(ge=1, le=MAX_TOPIC_PARTITIONS),
    BeforeValidator(
        _whole,
        json_schema_input_type=Annotated[int, Field(ge=1, le=MAX_TOPIC_PARTITIONS)] | _DigitsSchema,
    ),
]
Number = Annotated[
    int,
    Strict(),
    Field(ge=0, le=MAX_NUMBER),
    BeforeValidator(
        _whole, json_schema_input_type=Annotated[int, Field(ge=0, le=MAX_NUMBER)] | _DigitsSchema
    ),
]
"""Number of a partition, which may not exist."""
Limit = Annotated[int, Strict(), Field(ge=1, le=MAX_NUMBER), _Whole]
NumberText = Annotated[int, Strict(), Field(ge=0, le=MAX_NUMBER), _Whole]
"""Number of a partition in a path or query, where all values are text."""
Option = Literal["blacklist", "whitelist"]

_TOPIC_TITLE = "a valid topic name"
_TOPIC_HINT = "1 to 249 characters of a-z, A-Z, 0-9, '.', '_' and '-'; not '.' or '..'"
_COUNT_TITLE = "a valid number of partitions"
_COUNT_HINT = f"a whole number from 1 to {MAX_TOPIC_PARTITIONS}"
_NUMBER_TITLE = "a partition number"
_NUMBER_HINT = "a whole number from 0"
_LIMIT_TITLE = "a limit"
_LIMIT_HINT = f"a whole number from 1 to {MAX_NUMBER}"
_OPTION_TITLE = "an option"
_OPTION_HINT = "blacklist or whitelist"


# --- Paths, queries and bodies


DryRun = Annotated[
    Literal["true", "false"],
    Field(title="true or false", description="true: show the changes without writing them"),
]


class AnyTopicPath(Path):
    """Any name: one that is not whitelisted is a 404."""

    topic: str


class TopicPath(Path):
    topic: TopicName = Field(title=_TOPIC_TITLE, description=_TOPIC_HINT)


class TopicPartitionPath(TopicPath):
    partition: NumberText = Field(title=_NUMBER_TITLE, description=_NUMBER_HINT)


class WorkerPath(Path):
    worker: str


class RouteQuery(Query):
    """Selection of routes; not needed in a fleet with a single route."""

    src: str | None = Field(
        default=None, title="a cluster", description="name of the source cluster"
    )
    dst: str | None = Field(
        default=None, title="a cluster", description="name of the target cluster"
    )
    routeid: NumberText | None = Field(
        default=None,
        title=_WHOLE_TITLE,
        description="as scripts for uReplicator's federated version send it; src and dst name the route",
    )


def _route_name(value: object) -> object:
    return str(Route.parse(value)) if isinstance(value, str) else value


class TopicsQuery(RouteQuery):
    """Filters and pages of the list of topics; each filter narrows it further."""

    route: Annotated[str, AfterValidator(_route_name)] | None = Field(
        default=None, title="a route", description="as in west.east"
    )
    state: Literal["active", "paused", "reversed", "deleting", "stopped", "blacklisted"] | None = (
        Field(
            default=None,
            title="a state",
            description="state that takes effect: active, paused, deleting, stopped or blacklisted",
        )
    )
    match: str | None = Field(
        default=None,
        min_length=1,
        max_length=249,
        pattern=r"^[A-Za-z0-9._*?-]+$",
        title="a pattern",
        description="pattern of names with * and ?, as in orders-*",
    )
    limit: Limit | None = Field(
        default=None,
        title=_LIMIT_TITLE,
        description=f"most names in the response, {_LIMIT_HINT}; default: all",
    )
    after: TopicName | None = Field(
        default=None,
        title=_TOPIC_TITLE,
        description="only names behind this one: `next` of the page before",
    )


class HistoryQuery(RouteQuery):
    topic: TopicName | None = Field(default=None, title=_TOPIC_TITLE, description=_TOPIC_HINT)
    partition: NumberText | None = Field(
        default=None, title=_NUMBER_TITLE, description=_NUMBER_HINT
    )
    worker: str | None = Field(
        default=None, description="worker that lost or got a partition, joined or left"
    )
    kind: EventKind | None = Field(
        default=None, title="a kind of event", description=f"one of {', '.join(EventKind)}"
    )
    event: str | None = Field(default=None, description="id of the event, as in the logs")
    request: str | None = Field(
        default=None, description="X-Request-Id of the request that caused it"
    )
    limit: Limit = Field(default=100, title=_LIMIT_TITLE, description=_LIMIT_HINT)


class DeleteQuery(RouteQuery):
    positions: Literal["keep", "forget"] = Field(
        default="keep",
        title="a treatment of positions",
        description="keep or forget; forget: the positions are deleted, so a topic that is added"
        " again is copied from its start",
    )


class RebalanceQuery(Query):
    dry_run: Literal["true", "false"] = Field(
        default="false",
        title="true or false",
        description="true: show the moves without making them",
    )
    confirm: Literal["true", "false"] = Field(
        default="false",
        title="true or false",
        description="true: partitions move off lost workers, however many are lost",
    )
    plan: str | None = Field(
        default=None,
        pattern="^[0-9a-f]{16}$",
        title="the planId of a dry run",
        description="apply exactly this plan: if the fleet has changed since, nothing moves",
    )


class BlacklistQuery(RouteQuery):
    topic: TopicName | None = Field(default=None, title=_TOPIC_TITLE, description=_TOPIC_HINT)
    partition: NumberText | None = Field(
        default=None, title=_NUMBER_TITLE, description=_NUMBER_HINT
    )
    scope: Literal["topic"] | None = Field(
        default=None,
        title="a scope",
        description="topic: the whole topic; required if no partition is given",
    )
    opt: Option | None = Field(default=None, title=_OPTION_TITLE, description=_OPTION_HINT)


class ResumeTopicBody(OptionalBody):
    restart: Annotated[bool, Strict()] = Field(
        default=False,
        title="true or false",
        description="true: of a stopped topic, copy the present topic from its first record",
    )


class BlacklistBody(OptionalBody):
    topic: TopicName | None = Field(default=None, title=_TOPIC_TITLE, description=_TOPIC_HINT)
    partition: Number | None = Field(
        default=None, title=_NUMBER_TITLE, description=_NUMBER_HINT, examples=[0]
    )
    scope: Literal["topic"] | None = Field(
        default=None,
        title="a scope",
        description="topic: the whole topic; required if no partition is given",
    )
    opt: Option | None = Field(default=None, title=_OPTION_TITLE, description=_OPTION_HINT)


_RAISED = "true: a target topic that exists with fewer partitions gets as many"
RaisePartitions = Annotated[
    bool, Strict(), Field(alias="raisePartitions", title="true or false", description=_RAISED)
]


class AddTopicBody(Body):
    topic: TopicName = Field(title=_TOPIC_TITLE, description=_TOPIC_HINT, examples=["orders"])
    num_partitions: Count | None = Field(
        default=None,
        alias="numPartitions",
        title=_COUNT_TITLE,
        description=f"{_COUNT_HINT}; default: all of the source",
        examples=[4],
    )
    raise_partitions: RaisePartitions = False


class AddNamedTopicBody(OptionalBody):
    topic: TopicName | None = Field(default=None, title=_TOPIC_TITLE, description=_TOPIC_HINT)
    num_partitions: Count | None = Field(
        default=None,
        alias="numPartitions",
        title=_COUNT_TITLE,
        description=f"{_COUNT_HINT}; default: all of the source",
        examples=[4],
    )
    raise_partitions: RaisePartitions = False


class ExpandTopicBody(Body):
    topic: TopicName = Field(title=_TOPIC_TITLE, description=_TOPIC_HINT, examples=["orders"])
    num_partitions: Count = Field(
        alias="numPartitions", title=_COUNT_TITLE, description=_COUNT_HINT, examples=[4]
    )
    raise_partitions: RaisePartitions = False


class ExpandNamedTopicBody(Body):
    topic: TopicName | None = Field(default=None, title=_TOPIC_TITLE, description=_TOPIC_HINT)
    num_partitions: Count = Field(
        alias="numPartitions", title=_COUNT_TITLE, description=_COUNT_HINT, examples=[4]
    )
    raise_partitions: RaisePartitions = False


# --- Selection of routes


def chosen_routes(settings: Settings, query: RouteQuery) -> tuple[RouteConfig, ...]:
    """The routes selected by `?src=&dst=`. Raises Problem if there is none."""
    chosen = tuple(
        config
        for config in settings.routes
        if query.src in (None, config.source) and query.dst in (None, config.target)
    )
    if not chosen:
        unknown = max({query.src or "", query.dst or ""} - settings.clusters.keys(), default="")
        asked = f"no route from {query.src or 'any source'} to {query.dst or 'any target'}"
        raise not_found(
            f"{asked} is configured{did_you_mean(unknown, settings.clusters)}",
            field="src" if query.src else "dst",
            hint=f"the routes are {_listed(str(config.route) for config in settings.routes)}",
        )
    return chosen


def chosen_route(settings: Settings, query: RouteQuery) -> RouteConfig:
    """The single route selected. Raises Problem if there are several."""
    chosen = chosen_routes(settings, query)
    if len(chosen) > 1:
        raise bad_request(
            f"the request matches several routes: {_listed(str(config.route) for config in chosen)}",
            field="src",
            hint=_ROUTE_HINT,
        )
    return chosen[0]


def only_route(settings: Settings, query: RouteQuery) -> Route | None:
    """The route selected out of several; None: all routes are selected, or there is only one."""
    chosen = chosen_routes(settings, query)
    return chosen[0].route if len(chosen) == 1 and len(settings.routes) > 1 else None


# --- Refusals


def missing(model: type[RequestModel], name: str) -> Problem:
    """Refusal for a field that is missing."""
    _, hint = _texts(model, name)
    return bad_request(f"{name} is missing", field=name, hint=hint)


def _refusal(model: type[RequestModel], error: ErrorDetails) -> Problem:
    name = str(error["loc"][0]) if error["loc"] else ""
    if _is_unknown(error):
        known = _names(model)
        return bad_request(
            f"{name!r} is not a known {model.item_name}",
            field=name,
            hint=f"known are {_listed(known)}"
            if known
            else f"this call takes no {model.item_name}s",
        )
    title, hint = _texts(model, name)
    if error["type"] == "missing" or error["input"] is None:
        return missing(model, name)
    if error["type"] == _REFUSED:
        return bad_request(error["msg"], field=name, hint=error["ctx"]["hint"])
    return bad_request(f"{_short(error['input'])} is not {title}", field=name, hint=hint)


def _is_unknown(error: ErrorDetails) -> bool:
    """Unknown fields are reported first: a misspelt field is missing as well."""
    return error["type"] == "extra_forbidden"


def _names(model: type[BaseModel]) -> list[str]:
    return [info.alias or name for name, info in model.model_fields.items()]


def _texts(model: type[BaseModel], wanted: str) -> tuple[str, str]:
    """Title and description of a field by its public name."""
    for name, info in model.model_fields.items():
        if wanted in (name, info.alias):
            return info.title or "valid", info.description or ""
    return "valid", ""


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def _example(model: type[BaseModel]) -> str:
    values = {
        info.alias or name: info.examples[0]
        for name, info in model.model_fields.items()
        if info.examples
    }
    return "send " + json.dumps(values)


def _short(value: object) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 80 else f"{text[:77]}..."
