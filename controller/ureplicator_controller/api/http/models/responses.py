"""Response models: the schema at /openapi.json is generated from them.

Views return plain dictionaries; in tests each is validated against the model that its call declares
(`validated`), so neither can change without the other. Keys that may be absent have a default here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel, ConfigDict

from ureplicator_controller.api.http.phrases import PHRASES
from ureplicator_controller.api.http.schema_cache import CachedSchemaModel

JsonResult = dict[str, Any] | tuple[dict[str, Any], int, Mapping[str, str]]
Responses = dict[HTTPStatus, type[BaseModel] | dict[str, Any] | None]

PROBLEM = "application/problem+json"


class ResponseModel(CachedSchemaModel):
    model_config = ConfigDict(extra="forbid")


class ProblemResponse(CachedSchemaModel):
    """RFC 9457: what is wrong, the field of the request it is about, and what to do about it."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    field: str | None = None
    hint: str | None = None


_PROBLEM_CONTENT = {
    PROBLEM: {"schema": {"$ref": f"#/components/schemas/{ProblemResponse.__name__}"}}
}


def problems(*statuses: int) -> Responses:
    """The problems that a call may respond with."""
    return {
        HTTPStatus(status): {
            "description": PHRASES[HTTPStatus(status)],
            "content": _PROBLEM_CONTENT,
        }
        for status in statuses
    }


def responses(model: type[BaseModel], *refusals: int, status: int = 200) -> Responses:
    """The success response, the problems of every call that reads the fleet, and further ones."""
    return {HTTPStatus(status): model} | problems(400, 401, 403, *refusals, 429, 500, 503)


def write_responses(model: type[BaseModel], *refusals: int, status: int = 200) -> Responses:
    """Responses as of `responses`, for a call that takes If-Match."""
    return responses(model, *refusals, 412, 413, status=status)


def validated(response: Any, declared: Mapping[Any, Any]) -> Any:
    """The response, if it matches its declared model. Raises ValidationError, KeyError."""
    body, status = response[:2] if isinstance(response, tuple) else (response, 200)
    model = declared[HTTPStatus(status)]
    if isinstance(model, type) and issubclass(model, BaseModel):
        model.model_validate_json(json.dumps(body), strict=True)
    return response
