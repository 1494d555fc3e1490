"""Versions in a fleet that differ."""

from __future__ import annotations

from ureplicator_controller.core.state.versions import file_conditions, version_conditions


def conditions(*, controllers: dict[str, str], workers: dict[str, str]) -> list[str]:
    return list(version_conditions(controllers, workers))


def test_one_version_is_no_condition() -> None:
    assert conditions(controllers={}, workers={}) == []
    assert conditions(controllers={"c1": "1.0", "c2": "1.0"}, workers={"w1": "1.1"}) == []


def test_each_role_is_compared_by_itself() -> None:
    assert conditions(
        controllers={"c2": "1.0", "c1": "1.1", "c3": "1.0"}, workers={"w1": "1.0", "w2": ""}
    ) == [
        "controllers run different versions: 1.0 (c2, c3), 1.1 (c1)",
        "workers run different versions: 1.0 (w1), an unknown version (w2)",
    ]


def test_only_some_names_are_shown() -> None:
    workers = {f"w{number}": "1.0" for number in range(8)} | {"w9": "1.1"}
    [found] = conditions(controllers={}, workers=workers)
    assert found.endswith(": 1.0 (w0, w1, w2, w3, w4 and 3 more), 1.1 (w9)")


def test_files_with_the_same_routes_are_no_condition() -> None:
    assert list(file_conditions({"c1": "a", "c2": "a", "old": ""})) == []


def test_controllers_with_different_files_are_named() -> None:
    assert list(file_conditions({"c3": "b", "c1": "b", "c2": "a"})) == [
        "controllers have different routes in their files, those of the leader count: c1, c3 / c2"
    ]
