"""Readers of a route's settings: outside the leader and REST, none takes them from the file.

Operators change settings while the fleet runs, and workers copy by what the leader publishes. A command or an
auditor that judged by its file would judge by other rules.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

from ureplicator_common.config.live_changes import LIVE_SETTINGS

ROOT = Path(__file__).parents[3]
FOLDERS = ("cli/ureplicator_cli", "worker/ureplicator_worker")
READERS = {
    "cli/ureplicator_cli/doctor/command.py": "judges the file before there is a fleet",
    "cli/ureplicator_cli/doctor/readings.py": "judges the file before there is a fleet",
    "worker/ureplicator_worker/auditor/preparation.py": "as long as no leader has published the route",
    "worker/ureplicator_worker/auditor/recording.py": "as long as no leader has published the route",
}
CONFIGS = ("config", "route", "each")
"""Names that these packages give to a `RouteConfig`."""


def test_only_known_modules_read_settings_of_routes_from_the_file() -> None:
    found = {path for folder in FOLDERS for path in _readers(ROOT / folder)}
    assert found == set(READERS)


def _readers(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text()
        if "RouteConfig" in text or "settings.routes" in text:
            tree = ast.parse(text)
            if any(_is_reading(node) for node in ast.walk(tree)):
                yield str(path.relative_to(ROOT))


def _is_reading(node: ast.AST) -> bool:
    if not isinstance(node, ast.Attribute) or node.attr not in (*LIVE_SETTINGS, "settings"):
        return False
    holder = node.value
    name = holder.attr if isinstance(holder, ast.Attribute) else getattr(holder, "id", "")
    return name.strip("_") in CONFIGS
