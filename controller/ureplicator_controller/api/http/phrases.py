"""Meaning of each status of a refusal, for the OpenAPI document."""

from __future__ import annotations

from http import HTTPStatus

PHRASES = {
    HTTPStatus.BAD_REQUEST: "Invalid request",
    HTTPStatus.UNAUTHORIZED: "No token, or one that is not known or has expired",
    HTTPStatus.FORBIDDEN: "The caller's role does not do, or the request comes from a page of another site"
    " or under a name that is not the controller's",
    HTTPStatus.TOO_MANY_REQUESTS: "Too many logins of this address have failed",
    HTTPStatus.NOT_FOUND: "No such resource",
    HTTPStatus.CONFLICT: "The state of the fleet or of a cluster does not allow the change",
    HTTPStatus.PRECONDITION_FAILED: "The present version is not one that If-Match names",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "The body is too large",
    HTTPStatus.INTERNAL_SERVER_ERROR: "Internal error, or a node in ZooKeeper that cannot be decoded",
    HTTPStatus.SERVICE_UNAVAILABLE: "ZooKeeper or a Kafka cluster is unavailable: repeat the request",
}
