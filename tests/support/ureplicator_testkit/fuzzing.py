"""Parts of the tests that call REST with generated input: checks of a response, and names that exist."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

CHECKS = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
)


def same_inputs(examples: int) -> settings:
    """Settings for as many inputs, the same in each run."""
    return settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


def put_in(case: Any, known: Mapping[str, str]) -> None:
    """Replace generated names by known ones: a random one ends at 404."""
    for part in (case.path_parameters, case.query, case.body):
        if isinstance(part, dict):
            part.update({name: known[name] for name in known.keys() & part.keys()})
