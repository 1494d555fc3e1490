"""Every response that is not a success, as `application/problem+json` (RFC 9457).

A problem names what is wrong (`detail`), the field of the request it is about (`field`) and what to do
about it (`hint`), so that a person with curl needs no manual. An internal error shows no traceback: it
is logged, and the response refers to the log.
"""

from __future__ import annotations

import json
import logging
from http import HTTPStatus

from flask import Flask, Response, request
from werkzeug.exceptions import HTTPException

from ureplicator_common.coordination import OutcomeUnknown, Unavailable
from ureplicator_common.coordination.edit import UnexpectedNode
from ureplicator_common.errors import OperatingError, TemporaryError
from ureplicator_common.kafka import ClusterUnavailable, TopicRefused

log = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"


class Problem(Exception):
    """Refusal; raised anywhere below a view, it becomes the response."""

    def __init__(
        self,
        status: HTTPStatus,
        detail: str,
        *,
        field: str = "",
        hint: str = "",
        retry_after_s: int = 0,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.field = field
        self.hint = hint
        self.retry_after_s = retry_after_s

    def response(self) -> Response:
        body = {
            "type": "about:blank",
            "title": self.status.phrase,
            "status": self.status.value,
            "detail": self.detail,
            "instance": request.path,
        }
        body |= {"field": self.field} if self.field else {}
        body |= {"hint": self.hint} if self.hint else {}
        response = Response(json.dumps(body) + "\n", status=self.status.value, mimetype=MEDIA_TYPE)
        if self.retry_after_s:
            response.headers["Retry-After"] = str(self.retry_after_s)
        return response


def bad_request(detail: str, *, field: str = "", hint: str = "") -> Problem:
    return Problem(HTTPStatus.BAD_REQUEST, detail, field=field, hint=hint)


def not_found(detail: str, *, field: str = "", hint: str = "") -> Problem:
    return Problem(HTTPStatus.NOT_FOUND, detail, field=field, hint=hint)


def conflict(detail: str, *, field: str = "", hint: str = "") -> Problem:
    return Problem(HTTPStatus.CONFLICT, detail, field=field, hint=hint)


def precondition_failed(detail: str) -> Problem:
    hint = "read the present state with GET, and repeat the request with its ETag"
    return Problem(HTTPStatus.PRECONDITION_FAILED, detail, field="If-Match", hint=hint)


def unavailable(
    detail: str, *, hint: str = "repeat the request", retry_after_s: int = 1
) -> Problem:
    return Problem(HTTPStatus.SERVICE_UNAVAILABLE, detail, hint=hint, retry_after_s=retry_after_s)


def register(app: Flask) -> None:
    app.register_error_handler(Problem, Problem.response)
    app.register_error_handler(HTTPException, _from_http)
    app.register_error_handler(OperatingError, _from_operating)
    app.register_error_handler(Exception, _from_bug)


def _from_http(error: HTTPException) -> Response:
    """Errors of Flask: unknown paths, wrong methods, bodies too large."""
    status = HTTPStatus(error.code or 500)
    allowed = ", ".join(sorted(getattr(error, "valid_methods", None) or ()))
    detail = {
        HTTPStatus.NOT_FOUND: f"no resource at {request.path}",
        HTTPStatus.METHOD_NOT_ALLOWED: f"method {request.method} is not allowed at {request.path}",
    }.get(status, error.description or status.phrase)
    response = Problem(status, detail, hint=f"use {allowed}" if allowed else "").response()
    if allowed:
        response.headers["Allow"] = allowed
    return response


def _from_operating(error: OperatingError) -> Response:
    return as_problem(error).response()


def as_problem(error: OperatingError) -> Problem:
    """The response to an operating error, such as a cluster that is away."""
    if isinstance(error, Unavailable):
        return unavailable(f"ZooKeeper is unavailable: {error}")
    if isinstance(error, OutcomeUnknown):
        return unavailable(
            f"the connection to ZooKeeper was lost during the write, its outcome is unknown: {error}",
            hint="check with GET whether it was applied, then repeat the request",
        )
    if isinstance(error, UnexpectedNode):
        return precondition_failed("the present version is not one that If-Match names")
    if isinstance(error, ClusterUnavailable):
        return unavailable(f"a Kafka cluster is unavailable: {error}")
    if isinstance(error, TopicRefused):
        return conflict(f"the target cluster refused the topic: {error}")
    retry_after_s = round(error.delay_s) if isinstance(error, TemporaryError) else 0
    return unavailable(str(error), retry_after_s=max(1, retry_after_s))


def _from_bug(error: Exception) -> Response:
    log.error("%s %s failed", request.method, request.path, exc_info=error)
    return Problem(
        HTTPStatus.INTERNAL_SERVER_ERROR,
        "internal error of the controller; its log has the details",
    ).response()
