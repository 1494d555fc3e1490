"""Generated parts of the pages, and the function that makes each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ureplicator_testkit.docs import (
    adr_index,
    chart_values,
    configuration,
    layout,
    metrics,
    rest_api,
    spark_properties,
    znode_tree,
)
from ureplicator_testkit.docs.pages import DOCS


@dataclass(frozen=True, slots=True)
class GeneratedPart:
    page: Path
    name: str
    content: Callable[[], str]


PARTS = (
    GeneratedPart(DOCS / "configuration.md", "configuration", configuration.table),
    GeneratedPart(DOCS / "rest-api.md", "refusal", rest_api.refusal),
    GeneratedPart(DOCS / "rest-api.md", "calls", rest_api.reference),
    GeneratedPart(DOCS / "architecture.md", "znodes", znode_tree.table),
    GeneratedPart(DOCS / "spark.md", "spark-properties", spark_properties.tables),
    GeneratedPart(DOCS / "metrics.md", "metrics", metrics.tables),
    GeneratedPart(DOCS / "kubernetes.md", "chart-values", chart_values.table),
    GeneratedPart(DOCS / "development.md", "layout", layout.table),
    GeneratedPart(DOCS / "adr" / "README.md", "adr", adr_index.table),
)
