"""Each test that stands for a feature exists."""

from __future__ import annotations

import pytest

from ureplicator_testkit.docs.pages import ROOT
from ureplicator_testkit.features import TESTS


@pytest.mark.parametrize("test", [test for tests in TESTS.values() for test in tests])
def test_it_exists(test: str) -> None:
    file, _, name = test.partition("::")
    assert f"def {name}(" in (ROOT / "tests" / file).read_text()
