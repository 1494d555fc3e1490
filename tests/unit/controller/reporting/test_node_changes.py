"""Changes of operators, in words."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ureplicator_controller.core.reporting.authorship import by_of, id_of, reference
from ureplicator_controller.core.reporting.node_changes import MAX_TEXT, MAX_VALUE, node_change


def node(**fields: object) -> bytes:
    return json.dumps(fields).encode()


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        (node(state="active"), node(state="paused"), "state active -> paused"),
        (node(a=1, b=[1, 2]), node(a=2, b=[1]), "a 1 -> 2; b [1, 2] -> [1]"),
        (node(a=1), node(a=1, b=True), "b true"),
        (None, node(slots=4), "created: slots 4"),
        (None, b"", "created"),
        (node(a=1), None, "removed"),
        (node(a=1, requestId="x/olga"), node(a=1, requestId="y/rosa"), ""),
        (b"\xff", node(a=1), "a 1; value unreadable -> null"),
    ],
)
def test_a_change_names_the_fields_that_differ(
    before: bytes | None, after: bytes | None, text: str
) -> None:
    assert node_change(before, after) == text


def test_long_values_and_texts_are_cut() -> None:
    assert node_change(node(a=""), node(a="x" * 500)) == f"a  -> {'x' * MAX_VALUE}..."
    many = {f"field{number}": number for number in range(500)}
    assert len(node_change(node(), node(**many))) == MAX_TEXT + 3


@given(st.text(alphabet="abc-0.", min_size=1), st.text())
def test_a_reference_has_the_id_and_the_caller(id: str, by: str) -> None:
    stored = reference(id, by)
    assert (id_of(stored), by_of(stored)) == (id, by)
