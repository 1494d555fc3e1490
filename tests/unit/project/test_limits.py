"""Size limits: functions of 70 lines, files of 500 lines, folders of 24 modules, product classes of 20
methods."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
FOLDERS = ("cli", "common", "controller", "worker", "tests", "scripts")
FUNCTION_LINES = 70
FILE_LINES = 500
FOLDER_MODULES = 24
PRODUCT = ("cli", "common", "controller", "worker")
CLASS_METHODS = 20
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef


def test_files_are_short() -> None:
    lengths = ((path, len(path.read_text().splitlines())) for path in _sources())
    assert [f"{_name(path)}: {n}" for path, n in lengths if n > FILE_LINES] == []


def test_functions_are_short() -> None:
    assert [place for path in _sources() for place in _long_functions(path)] == []


def test_folders_are_small() -> None:
    modules = (path for path in _sources() if path.suffix == ".py" and path.stem != "__init__")
    counts = Counter(path.parent for path in modules)
    assert [f"{_name(folder)}: {n}" for folder, n in counts.items() if n > FOLDER_MODULES] == []


def test_product_classes_are_small() -> None:
    """Properties and private methods count."""
    product = (
        path for path in _sources() if _name(path).startswith(PRODUCT) and path.suffix == ".py"
    )
    assert [place for path in product for place in _large_classes(path)] == []


def _large_classes(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ClassDef):
            methods = sum(isinstance(each, FUNCTIONS) for each in node.body)
            if methods > CLASS_METHODS:
                yield f"{_name(path)}:{node.lineno} {node.name}: {methods}"


def _sources() -> Iterator[Path]:
    """Python files, and every script in any language."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            hidden = "__pycache__" in path.parts
            if path.is_file() and not hidden and (path.suffix == ".py" or folder == "scripts"):
                yield path


def _long_functions(path: Path) -> Iterator[str]:
    if path.suffix != ".py":
        return
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, FUNCTIONS):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES:
                yield f"{_name(path)}:{node.lineno} {node.name}: {length}"


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))
