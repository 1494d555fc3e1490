"""/openapi.json: it describes every call, and responses are validated against it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError

from ureplicator_controller.api.http.models.responses import responses, validated
from ureplicator_controller.api.http.models.topics import TopicList
from ureplicator_testkit.control.rest_fixture import NewRest, RestFixture, problem_of
from ureplicator_testkit.secured.outputs import PATH_PARAMETERS

PAGES = {
    "/",
    "/list",
    "/show/<kind>",
    "/dashboard/<path:filename>",
    "/openapi.json",
    "/login",
    "/logout",
}
"""For people and for the schema's readers; not calls."""


@pytest.fixture
def rest(new_rest: NewRest) -> RestFixture:
    return new_rest(described=True)


@pytest.fixture
def schema(rest: RestFixture) -> dict[str, Any]:
    response = rest.call("GET", "/openapi.json")
    assert response.status_code == 200
    return dict(response.get_json())


def operations(schema: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in schema["paths"].items():
        for method, operation in item.items():
            yield method.upper(), path, operation


def test_every_call_is_described(rest: RestFixture, schema: dict[str, Any]) -> None:
    offered = {
        (method, rule.rule.replace("<path:", "{").replace("<", "{").replace(">", "}"))
        for rule in rest.app.url_map.iter_rules()
        for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}
        if rule.rule not in PAGES
    }
    assert {(method, path) for method, path, _ in operations(schema)} == offered


def test_the_search_for_secrets_knows_the_parameters_of_every_get(schema: dict[str, Any]) -> None:
    paths = [path for method, path, _ in operations(schema) if method == "GET"]
    names = {name for path in paths for name in re.findall("{([^}]*)}", path)}
    assert names == set(PATH_PARAMETERS)


def test_each_call_has_a_summary_and_its_problems(schema: dict[str, Any]) -> None:
    for method, path, operation in operations(schema):
        assert operation["summary"], (method, path)
        if path in ("/health", "/metrics"):
            continue
        for status in ("400", "503"):
            assert "application/problem+json" in operation["responses"][status]["content"]
        if "{" in path:
            assert "404" in operation["responses"], (method, path)
    ids = [operation["operationId"] for _, _, operation in operations(schema)]
    assert len(set(ids)) == len(ids) > 20


def test_all_references_resolve(schema: dict[str, Any]) -> None:
    def references(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            yield from ([value["$ref"]] if "$ref" in value else [])
            for part in value.values():
                yield from references(part)
        elif isinstance(value, list):
            for part in value:
                yield from references(part)

    known = {f"#/components/schemas/{name}" for name in schema["components"]["schemas"]}
    assert set(references(schema)) <= known


def test_the_schema_allows_numbers_as_text(schema: dict[str, Any]) -> None:
    count = schema["components"]["schemas"]["ExpandTopicBody"]["properties"]["numPartitions"]
    assert [option["type"] for option in count["anyOf"]] == ["integer", "string"]


@pytest.mark.parametrize(
    ("response", "error"),
    [
        ({"topics": [1]}, ValidationError),
        ({"topics": [], "more": 1}, ValidationError),
        ({}, ValidationError),
        (({"topics": []}, 201, {}), KeyError),
    ],
)
def test_a_response_that_does_not_match_its_model(response: Any, error: type[Exception]) -> None:
    declared = responses(TopicList, 404)
    assert validated({"topics": ["a"]}, declared) == {"topics": ["a"]}
    with pytest.raises(error):
        validated(response, declared)


def test_a_parameter_given_twice(rest: RestFixture) -> None:
    response = rest.call("POST", "/topics/orders?src=source&src=other")
    assert problem_of(response, 400)["field"] == "src"
    assert rest.intent("orders") is None
