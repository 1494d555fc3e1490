"""Functions for queries of Spark SQL in tests."""

from __future__ import annotations

from typing import Any


def register(spark: Any) -> None:
    spark.udf.register("shout", shout)


def shout(text: str | None) -> str | None:
    return None if text is None else text.upper()
