"""`offsets` of a route: the same as at the source, of all topics or of some, or mapped."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from ureplicator_common.config.live_routes import changed_route
from ureplicator_common.config.route import RouteConfig
from ureplicator_common.config.section import Faults, faults_of

ROUTE = {
    "source": "west",
    "target": "east",
    "handlers": [{"topics": "handled", "handler": "package.module:factory"}],
}
MAPPED = RouteConfig.model_validate(ROUTE)


@pytest.mark.parametrize(
    ("given", "same"),
    [
        ({}, []),
        ({"offsets": "mapped"}, []),
        ({"offsets": "same"}, ["orders", "orders.eu"]),
        ({"offsets": {"same": r"orders\..*"}}, ["orders.eu"]),
    ],
)
def test_topics_whose_offsets_are_the_same(given: dict[str, Any], same: list[str]) -> None:
    settings = RouteConfig.model_validate({**ROUTE, **given}).settings
    topics = ("orders", "orders.eu", "handled")
    assert [topic for topic in topics if settings.has_same_offsets(topic)] == same


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"offsets": "equal"}, "offsets: unknown value 'equal', expected same, mapped, or a patt"),
        ({"offsets": {"same": "("}}, "offsets.same: '(' is not a regular expression"),
        ({"offsets": {"equal": "x"}}, "offsets.equal: unknown key"),
        ({"offsets": True}, "offsets: expected a mapping"),
        (
            {"offsets": "same", "delivery": "at_least_once"},
            "offsets: same needs delivery: exactly_once on the same route",
        ),
    ],
)
def test_offsets_that_cannot_be_the_same(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError) as refused:
        RouteConfig.model_validate({**ROUTE, **given})
    (fault,) = faults_of(refused.value, root=RouteConfig)
    assert str(fault).startswith(reason)


def test_they_change_while_the_fleet_runs_as_far_as_records_are_not_repeated() -> None:
    changed = changed_route(MAPPED, {"offsets": "same"})
    assert changed.settings.same_offsets == ".*"
    assert changed_route(MAPPED, {"offsets": {"same": "clicks"}}).settings.same_offsets == "clicks"
    assert changed_route(changed, {"offsets": "mapped"}) == MAPPED
    with pytest.raises(Faults, match="offsets: same needs delivery: exactly_once"):
        changed_route(changed, {"delivery": "at_least_once"})
