"""Keys that an identity provider publishes: those that can be used are found, whatever lies beside them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ureplicator_controller.api.access.oidc.provider import usable_keys
from ureplicator_testkit.json_values import json_values
from ureplicator_testkit.secured.identity_provider import SigningKey

ONE = SigningKey("one").public
JSON = json_values(max_leaves=3)
ALGORITHMS = ["none", "HS256", "RS256", "ES256", "EdDSA", "PS512"]
KINDS = ["RSA", "EC", "oct", "OKP"]
ENTRIES = st.fixed_dictionaries(
    {"kid": st.just("other") | JSON, "kty": st.sampled_from(KINDS) | JSON},
    optional={
        "alg": st.sampled_from(ALGORITHMS) | JSON,
        **{name: JSON for name in ("use", "n", "e", "d", "k", "x", "y", "oth")},
        "crv": st.sampled_from(["P-256", "Ed25519"]) | JSON,
    },
)


@pytest.mark.parametrize(
    "other",
    [
        {**ONE, "kid": ["one"]},
        {**ONE, "kid": None},
        {**ONE, "kid": ""},
        {**ONE, "kid": "other", "alg": ["RS256"]},
        {"kid": "other", "kty": "oct", "alg": "none"},
        {"kid": "other", "kty": "oct"},
        {**ONE, "kid": "other", "use": "enc"},
        {**ONE, "kid": "other", "n": 7},
        {"kid": "other", "kty": "kind of another year"},
        "no object",
    ],
)
def test_an_entry_that_cannot_be_used_is_left_out_alone(other: object) -> None:
    assert list(usable_keys({"keys": [other, ONE]})) == ["one"]


@pytest.mark.parametrize("use", [{}, {"use": None}, {"use": "sig"}])
def test_keys_for_signatures_say_so_or_nothing(use: dict[str, Any]) -> None:
    without = {name: value for name, value in ONE.items() if name != "use"}
    assert list(usable_keys({"keys": [{**without, **use}]})) == ["one"]


@pytest.mark.parametrize("document", [{}, {"keys": None}, {"keys": {"one": ONE}}, {"keys": []}])
def test_no_keys(document: dict[str, Any]) -> None:
    assert usable_keys(document) == {}


@given(st.lists(JSON | ENTRIES, max_size=4))
def test_no_entry_hides_a_key(entries: list[Any]) -> None:
    found = usable_keys({"keys": [*entries, ONE]})
    assert found["one"].key_id == "one"
