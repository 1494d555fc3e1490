"""Text for people: control characters, which may come with names and reasons, are shown and not obeyed, long
lists of names are cut, and a name that is not known is compared with those that are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""All of C0 and C1 but tab and line feed; separators of lines; marks that reorder what is shown."""


def printable(text: str) -> str:
    """The text with each control character as `\\x1b`."""
    return _CONTROL.sub(lambda found: ascii(found[0])[1:-1], text)


def shown_name(name: str) -> str:
    """The name, in quotes if it could not be told from another one, or not be seen, otherwise."""
    is_plain = name.isprintable() and name == " ".join(name.split())
    return name if name and is_plain else repr(name)


def listed(names: Sequence[str], most: int) -> str:
    """`a, b and 3 more`: the first `most` names, and how many are left out."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'orders'?` with the most similar of the known names; "" if none is similar."""
    found = get_close_matches(name, list(known), n=1)
    return f"; did you mean {found[0]!r}?" if found else ""
