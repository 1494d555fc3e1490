"""Generated parts of the docs are up to date."""

from __future__ import annotations

import pytest

from ureplicator_testkit.docs.generated import PARTS, GeneratedPart
from ureplicator_testkit.docs.pages import COMMAND, with_part


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_generated_parts_are_up_to_date(part: GeneratedPart) -> None:
    text = part.page.read_text()
    assert with_part(text, part.name, part.content()) == text, f"run: {COMMAND}"
