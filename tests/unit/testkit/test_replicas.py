"""Coordinators are found by the hash that Java computes."""

import pytest

from ureplicator_testkit.servers.replicas import partition_of


@pytest.mark.parametrize(
    ("name", "hash"),
    [
        ("", 0),
        ("a", 97),
        ("ureplicator.a.b.c", 1_666_167_760),
        ("zzzzzzz", 215_481_018),
        ("ü", 252),
    ],
)
def test_partition_of_a_name(name: str, hash: int) -> None:
    assert partition_of(name, 50) == hash % 50
