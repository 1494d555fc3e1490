"""REST on in-memory ZooKeeper and Kafka: `rest` is one as it comes, `new_rest` makes others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest

from ureplicator_testkit.control.rest_fixture import NewRest, RestFixture


@pytest.fixture
def new_rest() -> Iterator[NewRest]:
    """Takes the arguments of `RestFixture`; what it made is closed at the end of the test."""
    with ExitStack() as made:

        def new(*arguments: Any, **options: Any) -> RestFixture:
            return made.enter_context(closing(RestFixture(*arguments, **options)))

        yield new


@pytest.fixture
def rest(new_rest: NewRest) -> RestFixture:
    return new_rest()
