"""Responses of token endpoints: a token, or one of two errors, whatever the bytes."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ureplicator_common.kafka import ClusterUnavailable, LoginRefused
from ureplicator_common.kafka.security.tokens import MAX_LIFE_S, UNSAID_LIFE_S, Token, token_of
from ureplicator_testkit.json_values import json_values

FIELDS = st.dictionaries(st.sampled_from(["access_token", "expires_in", "error"]), json_values())
DEEP = b"[" * 100_000
HUGE = b'{"access_token": "t", "expires_in": 1%s}' % (b"0" * 400)


def body(text: object, **fields: object) -> bytes:
    return json.dumps({"access_token": text, **fields}).encode()


def test_a_token_and_its_life() -> None:
    assert token_of(200, body("t", expires_in=300), "h") == Token("t", 300.0)
    assert token_of(200, body("t"), "h") == Token("t", UNSAID_LIFE_S)


@pytest.mark.parametrize("life", [0, -1, True, "300", None, float("inf"), float("nan"), 1e10, []])
def test_a_life_that_is_none(life: object) -> None:
    with pytest.raises(LoginRefused, match="expires_in is wrong"):
        token_of(200, body("t", expires_in=life), "h")


@pytest.mark.parametrize("text", ["", None, 1, "a\nb", "\N{SNOWMAN}", {"a": 1}])
def test_a_token_that_no_header_can_hold(text: object) -> None:
    with pytest.raises(LoginRefused, match="no access_token"):
        token_of(200, body(text), "h")


@pytest.mark.parametrize(
    ("status", "kind"), [(400, LoginRefused), (499, LoginRefused), (500, ClusterUnavailable)]
)
def test_refusals_are_final_and_failures_are_not(
    status: int, kind: type[ClusterUnavailable]
) -> None:
    with pytest.raises(ClusterUnavailable, match=f"status {status} 'invalid_client'") as raised:
        token_of(status, body(None, error="invalid_client"), "h")
    assert type(raised.value) is kind


@example(200, DEEP)
@example(200, HUGE)
@given(
    st.sampled_from([200, 302, 401, 503]),
    st.binary(max_size=50) | FIELDS.map(lambda fields: json.dumps(fields).encode()),
)
def test_no_response_is_more_than_a_token_or_an_error(status: int, response: bytes) -> None:
    refusal = ""
    try:
        token = token_of(status, response, "h")
    except ClusterUnavailable as error:
        refusal = str(error)
    assert len(refusal) < 1_000
    assert refusal.startswith("token endpoint h: ") or (
        status == 200 and 0 < token.life_s < MAX_LIFE_S
    )
