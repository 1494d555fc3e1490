"""Size limits: functions of 70 lines, files of 500 lines, folders of 24 modules, product classes of 20
methods."""

import ast
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

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
    modules = (path for path in _sources() if path.suffix == ".py")
    long = (d for path in modules for d in _definitions(path) if d.lines > FUNCTION_LINES)
    assert [f"{d.place}: {d.lines}" for d in long] == []


def test_folders_are_small() -> None:
    modules = (path for path in _sources() if path.suffix == ".py" and path.stem != "__init__")
    counts = Counter(path.parent for path in modules)
    assert [f"{_name(folder)}: {n}" for folder, n in counts.items() if n > FOLDER_MODULES] == []


def test_product_classes_are_small() -> None:
    """Properties and private methods count."""
    product = (
        path for path in _sources() if _name(path).startswith(PRODUCT) and path.suffix == ".py"
    )
    large = (d for path in product for d in _definitions(path) if d.methods > CLASS_METHODS)
    assert [f"{d.place}: {d.methods}" for d in large] == []


def _sources() -> Iterator[Path]:
    """Python files, and every script in any language."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            hidden = "__pycache__" in path.parts
            if path.is_file() and not hidden and (path.suffix == ".py" or folder == "scripts"):
                yield path


class Definition(NamedTuple):
    """A function with its lines, or a class with its methods."""

    place: str
    lines: int = 0
    methods: int = 0


@cache
def _definitions(path: Path) -> Sequence[Definition]:
    return list(_within(ast.parse(path.read_text()), _name(path)))


def _within(node: ast.AST, file: str) -> Iterator[Definition]:
    """Definitions are statements: expressions are not looked through."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            continue
        if isinstance(child, FUNCTIONS):
            lines = (child.end_lineno or child.lineno) - child.lineno + 1
            yield Definition(f"{file}:{child.lineno} {child.name}", lines=lines)
        elif isinstance(child, ast.ClassDef):
            methods = sum(isinstance(member, FUNCTIONS) for member in child.body)
            yield Definition(f"{file}:{child.lineno} {child.name}", methods=methods)
        yield from _within(child, file)


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))
