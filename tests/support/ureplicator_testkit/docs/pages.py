"""Pages of the documentation, and the parts of them that are generated.

A generated part stands between two comments, so that prose around it is written by hand:

    <!-- generated: NAME -->
    ...
    <!-- generated: end -->
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[4]
DOCS = ROOT / "docs"
README = ROOT / "README.md"
COMMAND = "PYTHONPATH=tests/support python -m ureplicator_testkit.docs"
"""Regenerates every generated part."""

_END = "<!-- generated: end -->"


def pages() -> list[Path]:
    """Every Markdown page that readers are sent to."""
    return [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]


def with_part(text: str, name: str, content: str) -> str:
    """The page's text with the named part replaced. Raises ValueError if it is not there once."""
    begin = f"<!-- generated: {name} -->"
    if text.count(begin) != 1:
        raise ValueError(f"{begin} is expected once")
    head, _, rest = text.partition(begin)
    _, end, tail = rest.partition(_END)
    if not end:
        raise ValueError(f"{_END} is missing after {begin}")
    return f"{head}{begin}\n{content.strip()}\n{_END}{tail}"


def anchor(title: str) -> str:
    """Anchor of a heading, as GitHub makes it: lower case, spaces to dashes, no other punctuation."""
    kept = (character for character in title.lower() if character.isalnum() or character in " -_")
    return "".join(kept).replace(" ", "-")
