"""Files of tokens."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ureplicator_controller.api.access.roles import Role
from ureplicator_controller.api.access.tokens import InvalidTokens, find_token, parse_tokens

TOKEN = "0123456789" + "abcdefghij"


def test_a_token_ends_at_its_time() -> None:
    tokens = parse_tokens(f"a {TOKEN} until=1970-01-01T00:00:10Z", Role.VIEWER)
    assert find_token(tokens, TOKEN, now_s=9.9) == tokens[0]
    assert find_token(tokens, TOKEN, now_s=10.0) is None


def test_a_token_in_both_files_has_the_higher_role() -> None:
    tokens = parse_tokens(f"a {TOKEN}", Role.OPERATOR) + parse_tokens(f"b {TOKEN}", Role.VIEWER)
    found = find_token(tokens, TOKEN, now_s=0)
    assert found is not None
    assert found.role is Role.OPERATOR


@pytest.mark.parametrize(
    "line",
    [
        "a",
        TOKEN,
        f"a {TOKEN[:-1]}",
        f"a/b {TOKEN}",
        f"a {TOKEN} until=tomorrow",
        f"a {TOKEN} until=2026-12-31T00:00:00",
        f"a {TOKEN} 2026-12-31T00:00:00Z",
        f"a {TOKEN} until=2026-12-31T00:00:00Z more",
        "a sha256:0123456789abcdef0123",
        "a sha256:" + 64 * "G",
    ],
)
def test_a_line_that_is_wrong_is_named_without_its_token(line: str) -> None:
    with pytest.raises(InvalidTokens, match="line 2") as raised:
        parse_tokens(f"# comment\n{line}\n", Role.VIEWER)
    assert TOKEN[:-1] not in str(raised.value)


@given(st.text())
def test_any_text_is_tokens_or_an_error(text: str) -> None:
    try:
        tokens = parse_tokens(text, Role.VIEWER)
    except InvalidTokens:
        return
    assert find_token(tokens, "", now_s=0) is None
