"""What callers may send, as models: they check it, and the schema at /openapi.json is made of them.

A model says of each field what it is (`title`) and what is taken (`description`); a refusal is made
of the same two, so the message, the check and the schema cannot drift apart. A field or parameter
that no model has is refused: a misspelt one would silently mean something else.

Bodies are JSON objects. Tools may leave the content type out, as uReplicator's own examples with
`curl -d` do. A page in somebody's browser may not: it can send a form to this port without asking,
but then says where it comes from (`Origin`), and is refused unless it sends JSON. Numbers may be
text ("4"), as uReplicator's tools send them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Annotated, Any, ClassVar, Literal

from flask import Request, request
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
from ureplicator_common.model import EventKind
from ureplicator_common.znodes import MAX_PARTITIONS
from ureplicator_controller.api.http.preconditions import PATTERN, Precondition
from ureplicator_controller.api.http.problems import Problem, bad_request, not_found
from ureplicator_controller.api.http.schema_cache import CachedSchemaModel

MAX_NUMBER = 999_999_999

_DIGITS = re.compile(r"[0-9]{1,9}")
_INTERNAL = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
_REFUSED = "refused"
_ROUTE_HINT = "choose one with ?src=SOURCE&dst=TARGET"


class LenientJsonRequest(Request):
    """Takes JSON from tools that do not say so, and from nobody else."""

    def get_json(self, force: bool = False, silent: bool = False, cache: bool = True) -> Any:
        """The body's JSON object; None for an empty body."""
        data = self.get_data()
        if not data.strip():
            return None
        if self.mimetype != "application/json" and "Origin" in self.headers:
            raise bad_request(
                f"the content type is {self.mimetype or 'missing'}, not application/json",
                field="Content-Type",
                hint="send the header Content-Type: application/json",
            )
        try:
            body = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise bad_request(f"the body is not JSON: {error}", hint="send JSON") from error
        if not isinstance(body, dict):
            raise bad_request("the body is not a JSON object", hint='send {"name": value, ...}')
        return body


class RequestModel(CachedSchemaModel):
    """Base of all that is asked; turns what pydantic finds into one problem."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    one_is: ClassVar[str] = "field"

    @model_validator(mode="wrap")
    @classmethod
    def _checked(cls, data: Any, handler: ModelWrapValidatorHandler[RequestModel]) -> RequestModel:
        cls.look(data)
        try:
            return handler({} if data is None else data)
        except ValidationError as error:
            found = error.errors(include_url=False)
            raise _refusal(cls, max(found, key=_is_unknown)) from error

    @classmethod
    def look(cls, data: Any) -> None:
        """What a kind of input is refused for as a whole."""


class Path(RequestModel):
    """Parts of the path."""


class Query(RequestModel):
    """Parameters behind the `?`. Nothing but this: there are none."""

    one_is: ClassVar[str] = "parameter"

    @classmethod
    def look(cls, data: Any) -> None:
        for name, values in request.args.lists():
            if len(values) > 1:
                raise bad_request(f"{name!r} is there twice", field=name, hint="say it once")


class Body(RequestModel):
    """A JSON object that must be there."""

    @classmethod
    def look(cls, data: Any) -> None:
        if data is None:
            raise bad_request("the body is empty", hint=_example(cls))


class OptionalBody(RequestModel):
    """A JSON object, or nothing. Nothing but this: there is nothing to say."""

    model_config = ConfigDict(openapi_extra={"required": False})  # type: ignore[typeddict-unknown-key]


class IfMatchHeader(RequestModel):
    """Headers of a write."""

    model_config = ConfigDict(extra="ignore")

    if_match: str | None = Field(
        default=None,
        alias="If-Match",
        pattern=PATTERN,
        title="an ETag as GET gives it",
        description='"123" or several of them, or *; a weak one (W/...) is of no use',
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


def _copied(name: str) -> str:
    if name in (".", ".."):
        raise ValueError
    if name in _INTERNAL:
        said, hint = "belongs to the brokers and is not copied", "choose one that is not internal"
        raise PydanticCustomError(_REFUSED, f"{name} {said}", {"hint": hint})
    return name


_DigitsSchema = Annotated[str, Field(pattern="^[0-9]{1,9}$")]
_Whole = BeforeValidator(_whole)
_WHOLE_TITLE = "a whole number"

TopicName = Annotated[
    str, Field(pattern=r"^[a-zA-Z0-9._-]{1,249}$", max_length=249), AfterValidator(_copied)
]
"""A name that a source topic can have."""
Count = Annotated[
    int,
    Strict(),
    Field(ge=1, le=MAX_PARTITIONS),
    BeforeValidator(
        _whole,
        json_schema_input_type=Annotated[int, Field(ge=1, le=MAX_PARTITIONS)] | _DigitsSchema,
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
"""Of a partition; whether there is such a one is for others to say."""
Limit = Annotated[int, Strict(), Field(ge=1, le=MAX_NUMBER), _Whole]
NumberText = Annotated[int, Strict(), Field(ge=0, le=MAX_NUMBER), _Whole]
"""A partition where all is text anyway: in paths and queries."""
Option = Literal["blacklist", "whitelist"]

_TOPIC_TITLE = "a legal topic name"
_TOPIC_HINT = "1 to 249 characters of a-z, A-Z, 0-9, '.', '_' and '-'; not '.' or '..'"
_COUNT_TITLE = "a possible number of partitions"
_COUNT_HINT = f"a whole number from 1 to {MAX_PARTITIONS}"
_NUMBER_TITLE = "a partition"
_NUMBER_HINT = "a whole number from 0 on"
_OPTION_TITLE = "an option"
_OPTION_HINT = "blacklist or whitelist"


# --- What the calls take


class AnyTopicPath(Path):
    """Any name: what is not whitelisted is not found."""

    topic: str


class TopicPath(Path):
    topic: TopicName = Field(title=_TOPIC_TITLE, description=_TOPIC_HINT)


class TopicPartitionPath(TopicPath):
    partition: NumberText = Field(title=_NUMBER_TITLE, description=_NUMBER_HINT)


class WorkerPath(Path):
    worker: str


class RouteQuery(Query):
    """Which routes are meant; where there is only one, nobody need say so."""

    src: str | None = Field(
        default=None, title="a cluster", description="name of the source cluster"
    )
    dst: str | None = Field(
        default=None, title="a cluster", description="name of the target cluster"
    )


class HistoryQuery(RouteQuery):
    topic: TopicName | None = Field(default=None, title=_TOPIC_TITLE, description=_TOPIC_HINT)
    partition: NumberText | None = Field(
        default=None, title=_NUMBER_TITLE, description=_NUMBER_HINT
    )
    worker: str | None = Field(default=None, description="who lost it, got it, came or went")
    kind: EventKind | None = Field(
        default=None, title="a kind of event", description=f"one of {', '.join(EventKind)}"
    )
    event: str | None = Field(default=None, description="its id, as logs have it")
    request: str | None = Field(default=None, description="X-Request-Id of who asked for it")
    limit: Limit = Field(default=100, title=_WHOLE_TITLE, description="a whole number above 0")


class DeleteQuery(RouteQuery):
    positions: Literal["keep", "forget"] = Field(
        default="keep",
        title="what can be done with positions",
        description="keep or forget; forget: a topic that is added again begins at the start",
    )


class RebalanceQuery(Query):
    dry_run: Literal["true", "false"] = Field(
        default="false",
        alias="dryRun",
        title="true or false",
        description="true: only show what would be done",
    )


class BlacklistQuery(RouteQuery):
    topic: TopicName | None = Field(default=None, title=_TOPIC_TITLE, description=_TOPIC_HINT)
    partition: NumberText | None = Field(
        default=None, title=_NUMBER_TITLE, description=_NUMBER_HINT
    )
    opt: Option | None = Field(default=None, title=_OPTION_TITLE, description=_OPTION_HINT)


class ResumeTopicBody(OptionalBody):
    restart: Annotated[bool, Strict()] = Field(
        default=False,
        title="true or false",
        description="true: of a stopped topic, copy what is there now from its first record",
    )


class BlacklistBody(OptionalBody):
    topic: TopicName | None = Field(default=None, title=_TOPIC_TITLE, description=_TOPIC_HINT)
    partition: Number | None = Field(
        default=None, title=_NUMBER_TITLE, description=_NUMBER_HINT, examples=[0]
    )
    opt: Option | None = Field(default=None, title=_OPTION_TITLE, description=_OPTION_HINT)


class AddTopicBody(Body):
    topic: TopicName = Field(title=_TOPIC_TITLE, description=_TOPIC_HINT, examples=["orders"])
    num_partitions: Count | None = Field(
        default=None,
        alias="numPartitions",
        title=_COUNT_TITLE,
        description=f"{_COUNT_HINT}; the source's when it is missing",
        examples=[4],
    )


class AddNamedTopicBody(OptionalBody):
    topic: TopicName | None = Field(default=None, title=_TOPIC_TITLE, description=_TOPIC_HINT)
    num_partitions: Count | None = Field(
        default=None,
        alias="numPartitions",
        title=_COUNT_TITLE,
        description=f"{_COUNT_HINT}; the source's when it is missing",
        examples=[4],
    )


class ExpandTopicBody(Body):
    topic: TopicName = Field(title=_TOPIC_TITLE, description=_TOPIC_HINT, examples=["orders"])
    num_partitions: Count = Field(
        alias="numPartitions", title=_COUNT_TITLE, description=_COUNT_HINT, examples=[4]
    )


class ExpandNamedTopicBody(Body):
    topic: TopicName | None = Field(default=None, title=_TOPIC_TITLE, description=_TOPIC_HINT)
    num_partitions: Count = Field(
        alias="numPartitions", title=_COUNT_TITLE, description=_COUNT_HINT, examples=[4]
    )


# --- Which routes are meant


def chosen_routes(settings: Settings, query: RouteQuery) -> tuple[RouteConfig, ...]:
    """The routes that `?src=&dst=` leave."""
    chosen = tuple(
        config
        for config in settings.routes
        if query.src in (None, config.source) and query.dst in (None, config.target)
    )
    if not chosen:
        raise not_found(
            f"there is no route from {query.src or 'anywhere'} to {query.dst or 'anywhere'}",
            field="src" if query.src else "dst",
            hint=f"the routes are {_listed(str(config.route) for config in settings.routes)}",
        )
    return chosen


def chosen_route(settings: Settings, query: RouteQuery) -> RouteConfig:
    """The one route that is meant."""
    chosen = chosen_routes(settings, query)
    if len(chosen) > 1:
        raise bad_request(
            f"there are several routes: {_listed(str(config.route) for config in chosen)}",
            field="src",
            hint=_ROUTE_HINT,
        )
    return chosen[0]


# --- Refusals


def missing(model: type[RequestModel], name: str) -> Problem:
    """For what two places may say, and neither did."""
    _, hint = _said_of(model, name)
    return bad_request(f"{name} is missing", field=name, hint=hint)


def _refusal(model: type[RequestModel], error: ErrorDetails) -> Problem:
    name = str(error["loc"][0]) if error["loc"] else ""
    if _is_unknown(error):
        known = _names(model)
        return bad_request(
            f"{name!r} is not a known {model.one_is}",
            field=name,
            hint=f"known are {_listed(known)}" if known else "there are none here",
        )
    title, hint = _said_of(model, name)
    if error["type"] == "missing" or error["input"] is None:
        return missing(model, name)
    if error["type"] == _REFUSED:
        return bad_request(error["msg"], field=name, hint=error["ctx"]["hint"])
    return bad_request(f"{_short(error['input'])} is not {title}", field=name, hint=hint)


def _is_unknown(error: ErrorDetails) -> bool:
    """Told first: a misspelt field is missing too."""
    return error["type"] == "extra_forbidden"


def _names(model: type[BaseModel]) -> list[str]:
    return [info.alias or name for name, info in model.model_fields.items()]


def _said_of(model: type[BaseModel], wanted: str) -> tuple[str, str]:
    """Title and description of a field by the name that callers use."""
    for name, info in model.model_fields.items():
        if wanted in (name, info.alias):
            return info.title or "taken here", info.description or ""
    return "taken here", ""


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
