"""Bodies of requests: JSON objects.

Tools may omit the content type, as uReplicator's own examples with `curl -d` do. A page in a browser could
send such a form to this port, too: `browsers` refuses it.
"""

from __future__ import annotations

import json
from typing import Any

from flask import Request

from ureplicator_controller.api.http.problems import Problem, bad_request


class LenientJsonRequest(Request):
    """Accepts JSON without a content type."""

    def get_json(self, force: bool = False, silent: bool = False, cache: bool = True) -> Any:
        """The body's JSON object; None for an empty body."""
        data = self.get_data()
        if not data.strip():
            return None
        try:
            body = json.loads(data, object_pairs_hook=_each_once)
        except (ValueError, RecursionError) as error:
            raise bad_request(f"the body is not JSON: {error}", hint="send JSON") from error
        if not isinstance(body, dict):
            raise bad_request("the body is not a JSON object", hint='send {"name": value, ...}')
        return body


def given_twice(name: str) -> Problem:
    """Refusal of a field or parameter that is there more than once."""
    return bad_request(f"{name!r} is given twice", field=name, hint="give it once")


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON, which would silently keep the last of two values."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise given_twice(name)
        found[name] = value
    return found
