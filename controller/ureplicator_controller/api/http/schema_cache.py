"""Models whose JSON schema is generated once: it is needed for each call, and takes milliseconds."""

from __future__ import annotations

from functools import cache
from typing import Any

from pydantic import BaseModel


class CachedSchemaModel(BaseModel):
    @classmethod
    def model_json_schema(cls, *args: Any, **kwargs: Any) -> dict[str, Any]:
        return _schema(cls, args, tuple(sorted(kwargs.items())))

    @classmethod
    def computed_schema(cls, *args: Any, **kwargs: Any) -> dict[str, Any]:
        return super().model_json_schema(*args, **kwargs)


@cache
def _schema(
    model: type[CachedSchemaModel], args: tuple[Any, ...], kwargs: tuple[tuple[str, Any], ...]
) -> dict[str, Any]:
    return model.computed_schema(*args, **dict(kwargs))
