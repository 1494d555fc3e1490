"""The table of folders in `docs/development.md`, generated from the docstrings of the packages."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from ureplicator_testkit.docs.pages import ROOT

HOMES = ("cli", "common", "controller", "worker", "tests/support", "scripts/tools")


def table() -> str:
    """One row for each package, with the first paragraph of its docstring. Raises ValueError without one."""
    rows = ["| folder | holds |", "|---|---|"]
    rows += [f"| `{folder}/` | {text} |" for folder, text in _packages()]
    return "\n".join(rows)


def _packages() -> Iterator[tuple[str, str]]:
    for home in HOMES:
        for init in sorted((ROOT / home).rglob("__init__.py")):
            yield str(init.parent.relative_to(ROOT)), _first_paragraph(init)


def _first_paragraph(init: Path) -> str:
    text = ast.get_docstring(ast.parse(init.read_text()))
    if not text:
        raise ValueError(f"{init} has no docstring that says what the folder holds")
    paragraph = " ".join(text.partition("\n\n")[0].split())
    return paragraph.removesuffix(".")
