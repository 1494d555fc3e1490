"""The table of the chart's values in `docs/kubernetes.md`, generated from its schema and its defaults."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from ureplicator_testkit.deploy.chart import CHART

GROUP = "<group>"
Schema = Mapping[str, Any]


def table() -> str:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    rows = [
        f"| `{'.'.join(path)}` | {_default(values, path)} | {_cell(schema['description'])} |"
        for path, schema in _rows()
    ]
    return "\n".join(["| value | default | what it is |", "|---|---|---|", *rows])


def names() -> set[str]:
    """Dotted names of all values of the table."""
    return {".".join(path) for path, _ in _rows()}


def _rows() -> Iterator[tuple[tuple[str, ...], Schema]]:
    described = _described(json.loads((CHART / "values.schema.json").read_text()))
    return (row for row in described if row[0] != ("global",))


def _described(
    schema: Schema, above: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Schema]]:
    """Path and schema of each value that has a description. Raises KeyError if a value has none, and
    nothing within it either."""
    if "description" in schema:
        yield above, schema
    children = dict(schema.get("properties", {}))
    if above == ("workerGroups",):
        children[GROUP] = schema["additionalProperties"]
    if not children and "description" not in schema:
        raise KeyError(".".join(above))
    for name, child in children.items():
        yield from _described(child, (*above, name))


def _default(values: Any, path: tuple[str, ...]) -> str:
    """The default as YAML; empty if there is none, or if the values within have their own rows."""
    found = values
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    if found is None or (isinstance(found, Mapping) and found and path[-1] != "labels"):
        return ""
    return f"`{json.dumps(found)}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace(">", "&gt;")
