"""REST whose `orders` can be cut over."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from ureplicator_testkit.control.cutover_fixture import CutoverRest


@pytest.fixture
def rest() -> Iterator[CutoverRest]:
    with closing(CutoverRest()) as rest:
        yield rest
