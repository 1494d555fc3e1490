"""Which parts of which pages are generated, and by what."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ureplicator_testkit.docs import configuration
from ureplicator_testkit.docs.pages import DOCS


@dataclass(frozen=True, slots=True)
class GeneratedPart:
    page: Path
    name: str
    content: Callable[[], str]


PARTS = (GeneratedPart(DOCS / "configuration.md", "configuration", configuration.table),)
