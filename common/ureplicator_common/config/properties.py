"""Properties of librdkafka and of Spark, which the configuration passes on under their own names.

A property whose name looks like a secret is masked in `repr`, so it appears neither in logs nor in
tracebacks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

from pydantic import BeforeValidator

MASK = "********"
_SECRET = re.compile(
    r"password|secret|token|credential|passphrase|jaas|\.key$|key\.pem|\bkey\b", re.I
)

_PLACE = re.compile(r"(_file|\.location|\.url)$")


def masked(properties: Mapping[str, str]) -> dict[str, str]:
    """Copy of the properties with every secret replaced by a mask."""
    return {
        name: MASK if value and _SECRET.search(name) else value
        for name, value in properties.items()
    }


def is_secret(name: str) -> bool:
    """True if the value of a property is a secret, rather than the place of one."""
    return bool(_SECRET.search(name)) and not _PLACE.search(name)


def _property_text(value: object) -> object:
    """YAML booleans and numbers as librdkafka and Spark write them."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if not isinstance(value, str):
        raise ValueError("expected a string, number or boolean")
    return value


PropertyText = Annotated[str, BeforeValidator(_property_text)]
