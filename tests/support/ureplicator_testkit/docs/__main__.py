"""Regenerates every generated part of the documentation (`pages.COMMAND`)."""

from __future__ import annotations

from ureplicator_testkit.docs.generated import PARTS
from ureplicator_testkit.docs.pages import with_part

for part in PARTS:
    page = part.page
    page.write_text(with_part(page.read_text(), part.name, part.content()))
