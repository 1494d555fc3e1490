"""`docs/rest-api.md`, generated from the OpenAPI schema of the application and from example calls."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel

from ureplicator_testkit.control.rest_fixture import RestFixture
from ureplicator_testkit.docs.cutover_calls import CUTOVER_CALLS, cutover_world
from ureplicator_testkit.docs.example_calls import (
    CALLS,
    REFUSED_CALL,
    ExampleCall,
    example_world,
    response_text,
)
from ureplicator_testkit.docs.pages import anchor

Schema = Mapping[str, Any]

WIDTH = 110
COMMON = ("src", "dst", "If-Match")
"""Parameters of many calls; the page describes them once."""
_ORDER = ("GET", "POST", "PUT", "DELETE")
_METRIC_LINES = 6


@dataclass(frozen=True, slots=True)
class _Row:
    name: str
    type: str
    text: str
    required: bool = True


def reference() -> str:
    """The generated part of the page: all calls by subject."""
    with closing(example_world()) as world:
        schema: Schema = world.call("GET", "/openapi.json").get_json()
        examples = _examples(world, CALLS)
    with closing(cutover_world()) as world:
        examples |= _examples(world, CUTOVER_CALLS)
    sections: dict[str, list[str]] = {}
    for path, item in schema["paths"].items():
        for method in sorted(item, key=lambda method: _ORDER.index(method.upper())):
            operation = item[method]
            example = examples.get((method.upper(), path))
            if example is None or example[1] >= 300:
                raise AssertionError(
                    f"{method.upper()} {path}: no successful call in example_calls.py"
                )
            text = _call(schema, method.upper(), path, operation, example)
            sections.setdefault(operation["tags"][0], []).append(text)
    parts = [_contents(schema)]
    for name, calls in sections.items():
        parts += [f"## {name.capitalize()}", *calls]
    return "\n\n".join(parts)


def _examples(
    world: RestFixture, calls: Sequence[ExampleCall]
) -> dict[tuple[str, str], tuple[ExampleCall, int, str]]:
    return {(call.method, call.rule): (call, *response_text(world, call)) for call in calls}


def refusal() -> str:
    """An example of a refusal."""
    with closing(example_world()) as world:
        return _example(REFUSED_CALL, *response_text(world, REFUSED_CALL))


def response_models() -> Mapping[tuple[str, str, int], type[BaseModel] | None]:
    """Method, path and status -> model of the response; None where it is not JSON."""
    with closing(example_world()) as world:
        schema: Schema = world.call("GET", "/openapi.json").get_json()
    models = {model.__name__: model for model in _models(BaseModel)}
    return {
        (method.upper(), path, int(status)): _model(models, response.get("content", {}))
        for path, item in schema["paths"].items()
        for method, operation in item.items()
        for status, response in operation["responses"].items()
    }


def _models(base: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for model in base.__subclasses__():
        if model.__module__.startswith("ureplicator_controller.api"):
            yield model
        yield from _models(model)


def _model(
    models: Mapping[str, type[BaseModel]], content: Mapping[str, Schema]
) -> type[BaseModel] | None:
    for kind, described in content.items():
        if kind.endswith("json") and "$ref" in described["schema"]:
            return models[described["schema"]["$ref"].rpartition("/")[2]]
    return None


def _contents(schema: Schema) -> str:
    rows = ["| call | does |", "|---|---|"]
    for path, item in schema["paths"].items():
        for method in sorted(item, key=lambda method: _ORDER.index(method.upper())):
            title = f"{method.upper()} {path}"
            rows.append(f"| [`{title}`](#{anchor(title)}) | {item[method]['summary']} |")
    return "\n".join(rows)


def _call(
    schema: Schema,
    method: str,
    path: str,
    operation: Schema,
    example: tuple[ExampleCall, int, str],
) -> str:
    parts = [f"### {method} {path}", operation["summary"]]
    parameters = [
        parameter
        for parameter in operation.get("parameters", ())
        if parameter["name"] not in COMMON
    ]
    if parameters:
        parts.append(
            _table("parameter", [_parameter(schema, parameter) for parameter in parameters])
        )
    common = [
        parameter["name"]
        for parameter in operation.get("parameters", ())
        if parameter["name"] in COMMON
    ]
    if common:
        parts.append("Also: " + ", ".join(f"`{name}`" for name in common) + ".")
    body = operation.get("requestBody", {}).get("content", {}).get("application/json")
    fields = list(_rows(schema, body["schema"], "")) if body else []
    if fields:
        parts.append(_table("field of the request", fields))
    parts += _responses(schema, operation)
    parts.append(_example(*example))
    return "\n\n".join(parts)


def _responses(schema: Schema, operation: Schema) -> Iterator[str]:
    refusals = []
    for status, response in operation["responses"].items():
        content = response.get("content", {})
        if status.startswith("2") and "application/json" in content:
            rows = list(_rows(schema, content["application/json"]["schema"], ""))
            yield _table(f"field of the response ({status})", rows)
        elif "application/problem+json" in content:
            refusals.append(status)
    if refusals:
        yield f"Refusals: {', '.join(refusals)}."


def _parameter(schema: Schema, parameter: Schema) -> _Row:
    place = "" if parameter["in"] == "query" else f" ({parameter['in']})"
    name = f"`{parameter['name']}`{place}"
    text = _text(parameter.get("description", ""), parameter["schema"])
    return _Row(name, _type(schema, parameter["schema"]), text, parameter.get("required", False))


def _rows(schema: Schema, part: Schema, prefix: str) -> Iterator[_Row]:
    """Fields of an object, and below each those of the objects in it."""
    part = _resolved(schema, part)
    if "anyOf" in part:
        yield from _rows_of_any(schema, part["anyOf"], prefix)
    required = part.get("required", ())
    for name, field in part.get("properties", {}).items():
        path = f"{prefix}{name}"
        text = field.get("description") or _about_object(schema, field)
        yield _Row(f"`{path}`", _type(schema, field), _text(text, field), name in required)
        yield from _inner_rows(schema, field, path)


def _rows_of_any(schema: Schema, options: Sequence[Schema], prefix: str) -> Iterator[_Row]:
    """Each field once; one that not all of the objects have is optional."""
    found = [list(_rows(schema, option, prefix)) for option in options]
    objects = [rows for rows in found if rows]
    in_all = (
        set.intersection(*({row.name for row in rows} for rows in objects)) if objects else set()
    )
    seen = set()
    for row in (row for rows in objects for row in rows):
        if row.name not in seen:
            seen.add(row.name)
            yield replace(row, required=row.required and row.name in in_all)


def _inner_rows(schema: Schema, field: Schema, path: str) -> Iterator[_Row]:
    field = _resolved(schema, field)
    if "properties" in field:
        yield from _rows(schema, field, f"{path}.")
    elif field.get("type") == "array":
        yield from _inner_rows(schema, field["items"], f"{path}[]")
    elif isinstance(field.get("additionalProperties"), Mapping):
        yield from _inner_rows(schema, field["additionalProperties"], f"{path}.*")
    elif "anyOf" in field:
        options = [_resolved(schema, option) for option in field["anyOf"]]
        objects = [option for option in options if "properties" in option]
        yield from _rows_of_any(schema, objects, f"{path}.")


def _about_object(schema: Schema, field: Schema) -> str:
    """Description of the objects in a field; those of enumerations are for developers."""
    field = _resolved(schema, field)
    if field.get("type") == "array":
        return _about_object(schema, field["items"])
    if isinstance(field.get("additionalProperties"), Mapping):
        return _about_object(schema, field["additionalProperties"])
    return str(field.get("description", "")) if "properties" in field else ""


def _resolved(schema: Schema, part: Schema) -> Schema:
    if "$ref" not in part:
        return part
    found: Schema = schema["components"]["schemas"][part["$ref"].rpartition("/")[2]]
    return found


def _text(text: str, part: Schema) -> str:
    """The description in one line; a default that says something."""
    text = " ".join(text.split()).replace("|", "\\|")
    default = part.get("default")
    if default in (None, "", False):
        return text
    return f"{text}; default {json.dumps(default)}" if text else f"default {json.dumps(default)}"


def _type(schema: Schema, part: Schema) -> str:
    part = _resolved(schema, part)
    if "enum" in part:
        return ", ".join(f"`{value}`" for value in part["enum"])
    if "const" in part:
        return f"`{part['const']}`"
    if "anyOf" in part:
        return _one_of([_type(schema, option) for option in part["anyOf"]])
    kind = part.get("type", "object")
    if kind == "array":
        return f"list of {_type(schema, part['items'])}"
    inner = part.get("additionalProperties")
    if kind == "object" and isinstance(inner, Mapping):
        return f"map of {_type(schema, inner)}"
    return str(kind)


def _one_of(types: Sequence[str]) -> str:
    """A number may always be sent as text, so that alternative is left out."""
    kinds = list(dict.fromkeys(types))
    if "integer" in kinds and "string" in kinds:
        kinds.remove("string")
    kinds = [f"({kind})" if " or " in kind else kind for kind in kinds]
    return " or ".join(kinds)


def _table(title: str, rows: Sequence[_Row]) -> str:
    lines = [f"| {title} | type | |", "|---|---|---|"]
    for row in rows:
        optional = "" if row.required else "optional"
        text = "; ".join(filter(None, (optional, row.text)))
        lines.append(f"| {row.name} | {row.type} | {text} |")
    return "\n".join(lines)


def _example(call: ExampleCall, status: int, text: str) -> str:
    label = f"<!-- {call.method} {call.rule}{'' if status == 200 else f' {status}'} -->"
    headers = "".join(f" -H '{name}: {value}'" for name, value in call.headers.items())
    body = "" if call.body is None else f" -d '{json.dumps(call.body)}'"
    if body:
        headers += " -H 'Content-Type: application/json'"
    quote = "'" if "?" in call.sent_to else ""
    verb = "" if call.method == "GET" else f"-X {call.method} "
    url = f"{quote}localhost:9000{call.sent_to}{quote}"
    return f"{label}\n```\n$ curl {verb}{url}{headers}{body}\n{_shown(text)}\n```"


def _shown(text: str) -> str:
    if text.startswith("retry:"):  # server-sent events
        return text.rstrip()
    if not text.startswith("{"):
        lines = [line for line in text.splitlines() if "ureplicator_" in line]
        return "\n".join([*lines[:_METRIC_LINES], "..."])
    return "\n".join(_lines(json.loads(text), ""))


def _lines(value: Any, indent: str) -> Iterator[str]:
    """JSON in as few lines as fit the width."""
    short = json.dumps(value)
    if len(indent) + len(short) <= WIDTH or not isinstance(value, dict | list) or not value:
        yield indent + short
        return
    opened, closed = ("{", "}") if isinstance(value, dict) else ("[", "]")
    yield indent + opened
    items = (
        [(f"{json.dumps(key)}: ", item) for key, item in value.items()]
        if isinstance(value, dict)
        else [("", item) for item in value]
    )
    for number, (key, item) in enumerate(items):
        comma = "," if number < len(items) - 1 else ""
        lines = list(_lines(item, f"{indent}  "))
        lines[0] = f"{indent}  {key}{lines[0].lstrip()}"
        lines[-1] += comma
        yield from lines
    yield indent + closed
