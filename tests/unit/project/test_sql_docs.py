"""The samples of `docs/sql.md`: the configuration, and the columns that it promises."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from ureplicator_common.config.settings import load_settings
from ureplicator_common.model import LaneKind, SqlSettings
from ureplicator_testkit.docs.samples import Block, blocks
from ureplicator_worker.sql.query import COLUMNS

PAGE = "docs/sql.md"


def labelled(label: str) -> Block:
    (found,) = (block for block in blocks() if block.page == PAGE and block.label == label)
    return found


def test_the_configuration_names_the_query(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(labelled("sql config").text)
    (route,) = load_settings(config, environ={}).routes
    settings = route.settings.transform("orders-eu")
    assert isinstance(settings, SqlSettings)
    assert settings.query.startswith("SELECT key, value, headers, timestamp FROM records")
    assert route.settings.lane("orders-eu") is LaneKind.SQL
    assert route.settings.lane("my-orders") is LaneKind.RAW


class Registered:
    """Functions by name, as `spark.udf` has them."""

    def __init__(self) -> None:
        self.udf = self
        self.functions: dict[str, Any] = {}

    def register(self, name: str, function: Any) -> None:
        self.functions[name] = function


def test_the_module_registers_its_function(tmp_path: Path) -> None:
    written = tmp_path / "shop_functions.py"
    written.write_text(labelled("sql module: shop_functions.py").text)
    spec = importlib.util.spec_from_file_location("shop_functions", written)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    spark = Registered()
    module.register(spark)
    assert spark.functions["shorten"]("acme") == "ac***"
    assert spark.functions["shorten"](None) is None


def test_all_columns_are_described() -> None:
    text = Path(__file__).parents[3].joinpath(PAGE).read_text()
    for name in COLUMNS:
        assert f"| `{name}` |" in text
