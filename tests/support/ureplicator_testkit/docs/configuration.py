"""The table of settings in `docs/configuration.md`, generated from the settings themselves."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from ureplicator_common.config.settings import Settings


def table() -> str:
    """Every key with its default and its docstring."""
    rows = ["| key | default | meaning, and reason for the default |", "|---|---|---|"]
    for key, field in _leaves(Settings, ""):
        text = " ".join((field.description or "").split()).replace("|", "\\|")
        if not text:
            raise AssertionError(f"{key} has no docstring in its settings class")
        rows.append(f"| `{key}` | {_default(field)} | {text} |")
    return "\n".join(rows)


def keys() -> list[str]:
    return [key for key, _ in _leaves(Settings, "")]


def _leaves(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, FieldInfo]]:
    for name, field in model.model_fields.items():
        inner = _section(field.annotation)
        if inner is not None:
            yield from _leaves(inner, f"{prefix}{name}.")
        elif name in ("routes", "handlers", "sql"):
            (item, *_) = get_args(field.annotation)
            yield from _leaves(item, f"{prefix}{name}[].")
        else:
            yield prefix + name, field


def _section(annotation: Any) -> type[BaseModel] | None:
    return (
        annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None
    )


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "*required*"
    value = field.get_default(call_default_factory=True)
    assert value is not PydanticUndefined
    return f"`{_as_yaml(value)}`"


def _as_yaml(value: Any) -> str:
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, Mapping):
        return json.dumps(dict(value))
    if isinstance(value, tuple):
        return json.dumps(list(value))
    return value or '""' if isinstance(value, str) else json.dumps(value)
