"""README's table of the configuration, made from the settings themselves so that it cannot drift.

python -m ureplicator_testkit.docs.readme      write it anew (with tests/support on PYTHONPATH)
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from ureplicator_common.config.settings import Settings

README = Path(__file__).resolve().parents[4] / "README.md"
BEGIN = "<!-- configuration: made by ureplicator_testkit.docs.readme -->"
END = "<!-- configuration: end -->"


def table() -> str:
    """Every key with its default and what its docstring says."""
    rows = ["| key | default | what it is, and why so |", "|---|---|---|"]
    for key, field in _leaves(Settings, ""):
        text = " ".join((field.description or "").split()).replace("|", "\\|")
        if not text:
            raise AssertionError(f"{key} has no docstring in settings.py")
        rows.append(f"| `{key}` | {_default(field)} | {text} |")
    return "\n".join(rows)


def keys() -> list[str]:
    return [key for key, _ in _leaves(Settings, "")]


def with_table(text: str) -> str:
    """README's text with the table as it should be."""
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n{table()}\n{END}{tail}"


def _leaves(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, FieldInfo]]:
    for name, field in model.model_fields.items():
        inner = _section(field.annotation)
        if inner is not None:
            yield from _leaves(inner, f"{prefix}{name}.")
        elif name == "routes":
            (item, *_) = get_args(field.annotation)
            yield from _leaves(item, "routes[].")
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


if __name__ == "__main__":
    README.write_text(with_table(README.read_text()))
