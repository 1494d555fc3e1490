"""Times in requests: with their zone, as in 2026-01-31T12:00:00Z."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import AfterValidator, Field

TIME = (
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?"
    r"(Z|[+-][0-9]{2}:[0-9]{2})"
)
"""Pattern of a time, without anchors."""


def checked(text: str) -> str:
    """Raises ValueError for a 30th of February."""
    datetime.fromisoformat(text)
    return text


TimeText = Annotated[str, Field(pattern=f"^{TIME}$"), AfterValidator(checked)]


def milliseconds(text: str) -> int:
    """Kafka's timestamps begin in 1970: negative ones stand for the ends of a log."""
    return max(0, round(datetime.fromisoformat(text).timestamp() * 1_000))
