"""Settings of a route that are changed beside those of its file."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from ureplicator_common.config.live_changes import LIVE_SETTINGS, encoded_changes, merged_changes
from ureplicator_common.config.live_routes import (
    LiveRoutes,
    changed_route,
    live_route,
    routes_digest,
    shown_settings,
)
from ureplicator_common.config.route import RouteConfig
from ureplicator_common.config.section import Faults
from ureplicator_common.model import Route

FILE = RouteConfig.model_validate(
    {
        "source": "west",
        "target": "east",
        "start": "2026-01-01T00:00:00Z",
        "naming": {"prefix": "west.", "rename": {"a": "b"}},
        "auto_whitelist": {"enabled": True, "include": ["orders", "clicks-.*"]},
        "handlers": [{"topics": "x", "handler": "package.module:factory", "args": {"n": [1]}}],
        "sql": [{"topics": "y", "query": "SELECT key, value FROM records"}],
        "heartbeats": {"enabled": True},
        "workers": {"tags": ["rack-1"], "min": 1, "max": 3},
    }
)
ROUTE = Route("west", "east")


def test_without_changes_the_file_counts() -> None:
    assert changed_route(FILE, {}) == FILE
    assert live_route(FILE, "").config == FILE


def test_sections_keep_what_is_not_named() -> None:
    changes = {"naming": {"rename": {"c": "d"}}, "workers": {"max": 5}, "start": "latest"}
    changed = changed_route(FILE, changes)
    assert (changed.naming.prefix, changed.naming.rename) == ("west.", {"c": "d"})
    assert (changed.workers.min, changed.workers.max) == (1, 5)
    assert changed.start == "latest"
    assert changed.handlers == FILE.handlers


@pytest.mark.parametrize("key", sorted(RouteConfig.model_fields.keys() - set(LIVE_SETTINGS)))
def test_other_settings_are_in_the_file_only(key: str) -> None:
    with pytest.raises(Faults, match=f"{key}: is in the file only"):
        changed_route(FILE, {key: getattr(FILE, key)})


def test_code_on_the_workers_is_named_in_the_file_only() -> None:
    """An operator of REST may not run anything there."""
    assert not {"handlers", "sql"} & set(LIVE_SETTINGS)


def test_what_is_shown_can_be_set() -> None:
    shown = shown_settings(FILE)
    assert shown.keys() == set(LIVE_SETTINGS)
    assert changed_route(FILE, shown) == FILE


def test_offsets_of_groups_do_not_follow_without_the_offset_map() -> None:
    tree = {"source": "west", "target": "east", "sync_group_offsets": {"enabled": True}}
    with pytest.raises(ValidationError, match="needs offset_map: true on the same route"):
        RouteConfig.model_validate(tree)

    config = RouteConfig.model_validate({**tree, "offset_map": True})
    with pytest.raises(Faults, match="needs offset_map: true on the same route"):
        changed_route(config, {"offset_map": False})


VALUES = st.one_of(st.none(), st.sampled_from(["x", "y"]))
GIVEN = st.fixed_dictionaries(
    {},
    optional={
        "start": VALUES,
        "on_gap": VALUES,
        "naming": st.one_of(
            st.none(), st.fixed_dictionaries({}, optional={"prefix": VALUES, "rename": VALUES})
        ),
    },
)


@given(st.lists(GIVEN, max_size=6))
def test_later_changes_win_setting_by_setting(courses: list[dict[str, Any]]) -> None:
    changes: dict[str, Any] = {}
    expected: dict[tuple[str, ...], str] = {}
    for given_changes in courses:
        changes = merged_changes(changes, given_changes)
        for key, value in given_changes.items():
            parts: dict[tuple[str, ...], Any] = {}
            if isinstance(value, dict):
                parts.update({(key, name): setting for name, setting in value.items()})
            else:
                parts.update(dict.fromkeys(place for place in expected if place[0] == key))
                parts[key,] = value
            for place, setting in parts.items():
                expected.pop(place, None)
                if setting is not None:
                    expected[place] = setting
    flat = {
        place: value
        for key, section in changes.items()
        for place, value in (
            {(key, name): setting for name, setting in section.items()}
            if isinstance(section, dict)
            else {(key,): section}
        ).items()
    }
    assert flat == expected


def test_changes_of_one_route_are_not_those_of_another() -> None:
    other = RouteConfig(source="north", target="east")
    routes = LiveRoutes([FILE, other])
    texts = {ROUTE: encoded_changes({"on_gap": "latest"}), Route("gone", "east"): "{}"}
    found = routes.of(texts)
    assert list(found) == [ROUTE, other.route]
    assert found[ROUTE].config == changed_route(FILE, {"on_gap": "latest"})
    assert found[other.route].config == other
    assert routes.config(ROUTE, {}) == FILE


def test_a_digest_tells_files_apart_by_their_routes() -> None:
    other = RouteConfig(source="north", target="east")
    assert routes_digest([FILE, other]) == routes_digest([other, FILE])
    changed = changed_route(FILE, {"on_gap": "latest"})
    assert routes_digest([FILE]) != routes_digest([changed])
    assert routes_digest([FILE]) != routes_digest([FILE, other])
