"""The brokers that the tests of this folder share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from ureplicator_testkit.secured.ends import Secured, secured_ends
from ureplicator_testkit.shared import Shared


@contextmanager
def started_ends() -> Iterator[Secured]:
    with TemporaryDirectory() as folder, secured_ends(Path(folder)) as ends:
        yield ends


@pytest.fixture(scope="module")
def secured(of_folder: Shared) -> Secured:
    return of_folder.get(started_ends)
