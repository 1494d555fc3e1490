"""Name of a copier in the logs, metrics and quotas of the brokers."""

from collections.abc import Mapping

import pytest

from ureplicator_worker.copier.task import client_id
from ureplicator_worker.lifeline.messages import CopierConfig


@pytest.mark.parametrize(
    ("properties", "name"),
    [({}, "ureplicator-eu-w1-3"), ({"client.id": "mirror"}, "mirror-eu-w1-3")],
)
def test_it_names_worker_and_slot(properties: Mapping[str, str], name: str) -> None:
    config = CopierConfig(
        fleet="eu",
        worker="w1",
        slot=3,
        run=1,
        host="h",
        port=1,
        token="",
        clusters={"a": properties},
        commit_interval_s=1.0,
        transaction_interval_s=0.1,
        buffer_bytes=1,
        silence_s=60.0,
    )
    assert client_id(config, "a") == name
