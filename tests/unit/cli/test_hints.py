"""Hints of REST as commands."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import ureplicator_controller.api
from ureplicator_cli.hints import HINTS, in_commands
from ureplicator_common.znode_contents import TopicIntent
from ureplicator_testkit.control.command import run
from ureplicator_testkit.control.rest_fixture import ONE_ROUTE, NewRest, RestFixture

REST_WORDS = re.compile(r"\b(GET|PUT|POST|DELETE)\b|\?src|\{\"restart")


@pytest.fixture
def rest(new_rest: NewRest) -> RestFixture:
    return new_rest(
        (*ONE_ROUTE, {"source": "other", "target": "target", "naming": {"prefix": "o."}})
    )


def test_hints_are_commands(rest: RestFixture, url: str) -> None:
    rest.put_intent("quiet", TopicIntent(3, 3, blacklisted=frozenset({1, 2}), target_topic="quiet"))
    rest.put_intent(
        "gone", TopicIntent(2, 2, stopped="source topic was deleted", target_topic="gone")
    )
    refused = {
        ("topics", "add", "quiet"): "--src SOURCE",
        ("topics", "add", "quiet", "--src", "source"): "ureplicator topics expand",
        ("topics", "pause", "nowhere", "--src", "source"): "ureplicator topics add adds one",
        ("topics", "resume", "gone", "--src", "source"): "ureplicator topics resume --restart",
        ("blacklist", "remove", "quiet/0", "--src", "source"): "ureplicator blacklist lists",
        ("instances", "drain", "w7"): "ureplicator instances lists",
        ("limits", "set", "topic", "quiet", "1", "--src", "source"): "rate: 1 is not a byte limit",
    }
    for words, hint in refused.items():
        result = run(*words, url=url)
        assert result.exit_code == 1
        assert hint in result.stderr
        assert not REST_WORDS.search(result.stderr)
        assert not result.stderr.startswith(("opt:", "restart:", "src:"))


def test_no_hint_of_rest_is_left_untranslated() -> None:
    found = set(_hints())
    assert {hint for hint in found if REST_WORDS.search(hint)} == set(HINTS)
    for hint in HINTS:
        assert not REST_WORDS.search(in_commands(f"no ({hint})"))


def _hints() -> Iterator[str]:
    """The texts of all hints that the API may give."""
    for path in Path(ureplicator_controller.api.__path__[0]).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.keyword(arg="hint", value=value):
                    yield from _texts(value)
                case ast.Assign(targets=[ast.Name(id=name)], value=value) if "HINT" in name:
                    yield from _texts(value)


def _texts(node: ast.AST) -> Iterator[str]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
            yield inner.value
