"""Functions for queries of Spark SQL in tests."""

from __future__ import annotations

import json
from typing import Any


def register(spark: Any) -> None:
    spark.udf.register("shout", shout)
    spark.udf.register("parsed", parsed)


def shout(text: str | None) -> str | None:
    return None if text is None else text.upper()


def parsed(text: str) -> str:
    """Fails at what is no JSON."""
    return str(json.loads(text))
