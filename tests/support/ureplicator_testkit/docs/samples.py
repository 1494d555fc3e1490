"""Samples in the documentation: code blocks, and what they contain for tests to check."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ureplicator_testkit.docs.pages import ROOT, pages

_BLOCK = re.compile(r"(?:^<!-- ([^\n]*) -->\n)?^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LABEL = re.compile(r"(GET|POST|PUT|DELETE) (/\S*)(?: (\d{3}))?")
_INLINE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")


@dataclass(frozen=True, slots=True)
class Block:
    """A code block, with the comment right before it as its label."""

    page: str
    label: str
    language: str
    text: str

    @property
    def call(self) -> tuple[str, str, int] | None:
        """Method, path and status of the call whose response this shows."""
        found = _LABEL.fullmatch(self.label)
        return (found[1], found[2], int(found[3] or 200)) if found else None

    def commands(self) -> Iterator[str]:
        """Its command lines, without prompt and comment."""
        for line in self.text.splitlines():
            yield line.removeprefix("$ ").partition(" #")[0].strip()

    def json_text(self) -> str:
        """The body, without command lines and headers. Raises StopIteration."""
        lines = self.text.splitlines()
        start = next(number for number, line in enumerate(lines) if line.startswith("{"))
        return "\n".join(_until_command(lines[start:]))


def _until_command(lines: Sequence[str]) -> Iterator[str]:
    for line in lines:
        if line.startswith("$ "):
            return
        yield line


@cache
def blocks() -> tuple[Block, ...]:
    return tuple(
        Block(_name(page), *(part or "" for part in found.groups()))
        for page in pages()
        for found in _BLOCK.finditer(page.read_text())
    )


@cache
def inline_code() -> tuple[tuple[str, str], ...]:
    """Page and text of everything in single backticks."""
    return tuple(
        (_name(page), found[1])
        for page in pages()
        for found in _INLINE.finditer(_BLOCK.sub("", page.read_text()))
    )


def words_of(command: str) -> list[str]:
    return shlex.split(command)


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))
