"""Points of `docs/guarantees.md`: numbered without a hole, and each is proven by tests that exist."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest

from ureplicator_testkit.docs.pages import DOCS, ROOT

CITED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


def points(title: str) -> dict[int, str]:
    text = (DOCS / "guarantees.md").read_text()
    (section,) = re.findall(rf"^## {title}\n(.*?)(?=^## )", text, re.DOTALL | re.MULTILINE)
    found = re.split(r"^(\d+)\. ", section, flags=re.MULTILINE)[1:]
    return dict(zip(map(int, found[::2]), found[1::2], strict=True))


@cache
def names_in(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_text())
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


@pytest.mark.parametrize(
    ("title", "count"),
    [
        ("KIP-3", 16),
        ("KIP-656", 13),
        ("KIP-545", 7),
        ("The same offsets", 5),
        ("Scenarios of MirrorMaker 2", 13),
        ("Bad input", 7),
        ("Known faults of brokers", 6),
    ],
)
def test_every_point_is_there_and_proven(title: str, count: int) -> None:
    found = points(title)
    assert list(found) == list(range(1, count + 1))
    assert [number for number, text in found.items() if not CITED.search(text)] == []


def test_tests_in_all_lanes_are_listed() -> None:
    listed = set(CITED.findall((DOCS / "development.md").read_text()))
    marked = {
        (str(path.relative_to(ROOT)), node.name)
        for path in sorted((ROOT / "tests" / "faults").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and "all_lanes" in ast.dump(node)
    }
    assert len(marked) > 2
    assert marked - listed == {("tests/faults/conftest.py", "flow")}


def test_every_cited_test_exists() -> None:
    cited = CITED.findall("".join(path.read_text() for path in DOCS.glob("*.md")))
    assert len(cited) > 60
    missing = [
        f"{path}::{name}"
        for path, name in cited
        if not (ROOT / path).exists() or (name and name not in names_in(path))
    ]
    assert missing == []
