"""Claims of a token and the role that they give; settings of the provider."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from ureplicator_common.config.access import AccessSettings
from ureplicator_common.config.oidc import OidcSettings
from ureplicator_controller.api.access.oidc.bearer import Bearers, looks_signed, role_of_claims
from ureplicator_controller.api.access.oidc.errors import ProviderUnavailable, TokenRefused
from ureplicator_controller.api.access.roles import Role
from ureplicator_testkit.control.manual_clock import ManualClock

GIVEN: dict[str, Any] = {
    "issuer": "https://id.example.com",
    "audience": "ureplicator",
    "viewer_roles": ["readers"],
    "operator_roles": ["on-call"],
}


@pytest.mark.parametrize(
    ("claim", "claims", "role"),
    [
        ("roles", {"roles": ["readers"]}, Role.VIEWER),
        ("roles", {"roles": ["readers", "on-call"]}, Role.OPERATOR),
        ("roles", {"roles": ["others"]}, Role.NOBODY),
        ("roles", {"roles": [["on-call"], {"on-call": 1}, 7]}, Role.NOBODY),
        ("roles", {}, Role.NOBODY),
        ("scope", {"scope": "openid on-call"}, Role.OPERATOR),
        ("scope", {"scope": "openid on-callers"}, Role.NOBODY),
        ("a.roles", {"a": {"roles": ["on-call"]}}, Role.OPERATOR),
        ("a.roles", {"a": ["roles"]}, Role.NOBODY),
        ("https://x.example/roles", {"https://x.example/roles": ["readers"]}, Role.VIEWER),
    ],
)
def test_the_role_of_claims(claim: str, claims: dict[str, Any], role: Role) -> None:
    settings = OidcSettings.model_validate({**GIVEN, "roles_claim": claim})
    assert role_of_claims(claims, settings) is role


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"issuer": "http://id.example.com"}, "issuer: expected https"),
        ({"issuer": "https://user@id.example.com"}, "issuer"),
        ({"issuer": "https://id.example.com?x=1"}, "issuer"),
        ({"issuer": ""}, "issuer: is required"),
        ({"audience": ""}, "audience: is required"),
        ({"algorithms": []}, "algorithms"),
        ({"algorithms": ["HS256"]}, "algorithms"),
        ({"algorithms": ["none"]}, "algorithms"),
        ({"viewer_roles": [], "operator_roles": []}, "operator_roles"),
    ],
)
def test_settings_that_are_refused(changed: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValidationError, match=fault):
        OidcSettings.model_validate(GIVEN | changed)


def test_a_provider_goes_without_files_but_not_without_the_mode() -> None:
    AccessSettings.model_validate({"mode": "tokens", "oidc": GIVEN})
    with pytest.raises(ValidationError, match="must be tokens"):
        AccessSettings.model_validate({"oidc": GIVEN})


@given(st.one_of(st.text(), st.lists(st.text(), min_size=3, max_size=3).map(".".join)))
def test_any_text_is_refused_or_cannot_be_judged(text: str) -> None:
    unreachable = {"issuer": "https://127.0.0.1:0"}
    bearers = Bearers(OidcSettings.model_validate(GIVEN | unreachable), clock=ManualClock())
    with pytest.raises((TokenRefused, ProviderUnavailable)):
        bearers.token("eyJ" + text)
    looks_signed(text)
