"""Fixtures of the tests of this folder: a broker with settings of its own, and Kafka's consumer in Java."""

from __future__ import annotations

from typing import Any

import pytest

from ureplicator_testkit.records.java_consumer import java_consumers
from ureplicator_testkit.servers.own_broker import OwnBroker, started_broker
from ureplicator_testkit.shared import Shared


@pytest.fixture(scope="module")
def own_broker(of_folder: Shared) -> OwnBroker:
    return of_folder.get(started_broker)


@pytest.fixture(scope="module")
def jvm(of_folder: Shared) -> Any:
    """A JVM with Kafka's consumer."""
    return of_folder.get(java_consumers)
