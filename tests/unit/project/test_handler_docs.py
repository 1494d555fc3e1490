"""The samples of `docs/handlers.md` work: the handler, its test, and the configuration."""

import json
import subprocess
import sys
from pathlib import Path

from ureplicator_common.config.settings import load_settings
from ureplicator_common.model import HandlerSettings
from ureplicator_testkit.docs.samples import Block, blocks
from ureplicator_worker.copier.record.host import make
from ureplicator_worker.handlers import Handler

PAGE = "docs/handlers.md"


def labelled(beginning: str) -> dict[str, Block]:
    return {
        block.label.removeprefix(beginning): block
        for block in blocks()
        if block.page == PAGE and block.label.startswith(beginning)
    }


def test_the_handler_passes_its_test(tmp_path: Path) -> None:
    for name, block in (labelled("handler: ") | labelled("test: ")).items():
        (tmp_path / name).write_text(block.text)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "test_route_orders.py",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)  # noqa: S603
    assert "3 passed" in done.stdout, done.stdout + done.stderr


def test_the_configuration_names_the_handler(tmp_path: Path) -> None:
    (block,) = labelled("config").values()
    config = tmp_path / "config.yaml"
    config.write_text(block.text)
    (route,) = load_settings(config, environ={}).routes
    settings = route.settings.transform("orders-eu")
    assert isinstance(settings, HandlerSettings)
    assert settings.handler == "route_orders:make"
    assert settings.dead_letter_topic == "orders-dead"
    assert json.loads(settings.args) == {"large": ["acme", "globex"], "topic": "orders-large"}
    assert route.settings.transform("my-orders") is None


def test_the_shipped_handlers_are_there() -> None:
    args = {
        "filters:by_key": {"pattern": "a"},
        "filters:by_header": {"name": "h"},
        "rename:topics": {"pattern": "(.*)", "replacement": "\\1"},
        "mask:json_fields": {"fields": ["a.b"]},
    }
    text = Path(__file__).parents[3].joinpath(PAGE).read_text()
    for name, given in args.items():
        whole = f"ureplicator_worker.handlers.{name}"
        assert f"`{whole}`" in text
        assert isinstance(make(whole, json.dumps(given)), Handler)
