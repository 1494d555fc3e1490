"""Names of users and clients, which may hold any character, in the text of a quota."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ureplicator_common.kafka.principal_requests import KafkaPrincipalReader


class OneQuota:
    """A client whose cluster has one quota."""

    def __init__(self, **names: str | None) -> None:
        self._entity = [
            SimpleNamespace(entity_type=kind, entity_name=name) for kind, name in names.items()
        ]

    def call_any(self, *_: object) -> Any:
        values = [SimpleNamespace(key="producer_byte_rate", value=1000.0)]
        entry = SimpleNamespace(entity=self._entity, values=values)
        return SimpleNamespace(error_code=0, entries=[entry])


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (None, "user *"),
        ("alice", "user alice"),
        ("/a//b%2F..", "user /a//b%2F.."),
        ("größe", "user größe"),
        ("*", 'user "*"'),
        ("", 'user ""'),
        ("a, user b", 'user "a, user b"'),
        ("CN=a,OU=b", 'user "CN=a,OU=b"'),
        ('"', 'user "\\""'),
        ("a\nb", 'user "a\\nb"'),
    ],
)
def test_no_name_is_taken_for_another(name: str | None, shown: str) -> None:
    reader = KafkaPrincipalReader(OneQuota(user=name))  # type: ignore[arg-type]
    assert reader.quotas() == {shown: "producer_byte_rate 1000"}
