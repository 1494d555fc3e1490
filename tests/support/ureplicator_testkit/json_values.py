"""Values of JSON for fuzz tests of what reads it."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

SHORT_TEXTS = st.text(max_size=12)


def json_values(
    texts: st.SearchStrategy[str] = SHORT_TEXTS, *, max_leaves: int = 12
) -> st.SearchStrategy[Any]:
    """Nested lists and objects; `texts`: strings and keys."""
    return st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | texts,
        lambda inner: st.lists(inner, max_size=9) | st.dictionaries(texts, inner),
        max_leaves=max_leaves,
    )
