"""`/openapi.json`, with the role of each call and what its login may be refused with."""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from typing import Any

from flask import Request
from flask_openapi3 import OpenAPI
from werkzeug.test import EnvironBuilder

from ureplicator_controller.api.access.gate import COOKIE
from ureplicator_controller.api.access.roles import Role, declared_role, viewer

SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "cookie": {"type": "apiKey", "in": "cookie", "name": COOKIE},
}


def register(app: OpenAPI) -> None:
    @cache
    def document() -> dict[str, Any]:
        described = deepcopy(app.api_doc)
        described.setdefault("components", {})["securitySchemes"] = SCHEMES
        roles = {
            rule.endpoint.rpartition(".")[2]: rule.endpoint for rule in app.url_map.iter_rules()
        }
        for item in described["paths"].values():
            for operation in item.values():
                endpoint = roles[operation["operationId"]]
                _add_role(operation, declared_role(app.view_functions[endpoint], _PLAIN))
        return described

    @viewer
    def openapi() -> dict[str, Any]:
        return document()

    app.add_url_rule("/openapi.json", "openapi", openapi)


def _add_role(operation: dict[str, Any], role: Role) -> None:
    operation["x-role"] = role.name.lower()
    if role is Role.NOBODY:
        operation["security"] = []
        for status in ("401", "429"):
            operation["responses"].pop(status, None)
    else:
        operation["security"] = [{"bearer": []}, {"cookie": []}]


_PLAIN = Request(EnvironBuilder().get_environ())
"""A request without parameters: not a dry run."""
