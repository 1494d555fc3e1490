"""Reasons that operators look up in `docs/operations.md` are those of the product."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ureplicator_testkit.docs.pages import DOCS, ROOT

PRODUCT = ("cli", "common", "controller", "worker")


def test_reasons_that_operators_look_up_are_in_the_sources() -> None:
    known = "\n".join(_texts())
    missing = [
        reason
        for reason in _documented_reasons()
        for part in re.split(r"<[^>]*>|\.\.\.|[A-Z_]{8,}", reason)
        if len(part.strip(" :")) > 3 and part.strip(" :") not in known
    ]
    assert missing == [], "not in the sources any more: reword them in docs/operations.md"


def _documented_reasons() -> Iterator[str]:
    text = (DOCS / "operations.md").read_text()
    for table in re.findall(r"<!-- reasons -->\n(.*?)\n\n", text, re.DOTALL):
        for row in table.splitlines()[2:]:
            yield from re.findall(r"`([^`]+)`", row.split(" | ")[0])


def _texts() -> Iterator[str]:
    """Texts in the product's code, with the expressions of f-strings left out."""
    for path in sorted(path for folder in PRODUCT for path in (ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value
