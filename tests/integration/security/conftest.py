"""The brokers that the tests of this folder share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ureplicator_testkit.secured.ends import Secured, secured_ends


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured_ends(tmp_path_factory.mktemp("certificates")) as ends:
        yield ends
